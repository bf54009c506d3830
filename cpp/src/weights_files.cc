#include "weights_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <utility>

#include "files.h"
#include "json.h"
#include "sha256.h"

namespace aoti {
namespace {

constexpr int64_t kSchema = 1;
constexpr size_t kLongestPointer = 1 << 16;

Result<size_t> SizeOf(const File& file, const std::string& name) {
  struct stat found{};
  if (::fstat(file.get(), &found) != 0) return ErrnoStatus(name, "cannot be looked at");
  if (!S_ISREG(found.st_mode)) return InvalidArgument(name + " is no plain file");
  return static_cast<size_t>(found.st_size);
}

// Exactly `content.size` bytes of `file`.
Status Fill(const File& file, const FileContent& content, const std::string& name) {
  for (size_t done = 0; done < content.size;) {
    AOTI_ASSIGN_OR_RETURN(
        const size_t got,
        ReadSome(file.get(), done, {content.memory.get() + done, content.size - done}, name));
    if (got == 0) {
      return InvalidArgument(name + ": expected " + std::to_string(content.size) +
                             " bytes, it ends after " + std::to_string(done));
    }
    done += got;
  }
  return {};
}

Result<FileContent> ReadFile(const std::filesystem::path& path, std::optional<size_t> bytes) {
  const std::string name = path.string();
  // Not to wait for a writer where someone put a pipe.
  AOTI_ASSIGN_OR_RETURN(const File file, Open(path, O_RDONLY | O_NONBLOCK));
  AOTI_ASSIGN_OR_RETURN(const size_t size, SizeOf(file, name));
  if (bytes ? size != *bytes : size > kLongestPointer) {
    return InvalidArgument(
        name + ": expected " +
        (bytes ? std::to_string(*bytes) : "at most " + std::to_string(kLongestPointer)) +
        " bytes, it has " + std::to_string(size));
  }
  // Not cleared first: the weights of a model may be large.
  FileContent content{std::unique_ptr<std::byte[]>(new std::byte[size]), size};
  AOTI_RETURN_IF_ERROR(Fill(file, content, name));
  return content;
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string(text, length);
}

bool IsDigest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Result<WeightsPointer> ParsePointer(std::string_view text) {
  AOTI_ASSIGN_OR_RETURN(const Json json, ParseJson(text, std::string(kPointerFile)));
  const Fields fields(json, std::string(kPointerFile));
  AOTI_ASSIGN_OR_RETURN(const int64_t schema, fields.Int("schema"));
  if (schema != kSchema) return fields.Wrong("schema", std::to_string(kSchema));
  WeightsPointer pointer;
  AOTI_ASSIGN_OR_RETURN(pointer.version, fields.Int("version"));
  AOTI_ASSIGN_OR_RETURN(pointer.sha256, fields.String("sha256"));
  AOTI_ASSIGN_OR_RETURN(const int64_t bytes, fields.Int("bytes"));
  AOTI_ASSIGN_OR_RETURN(pointer.package_sha256, fields.String("package_sha256"));
  if (pointer.version < 1) return fields.Wrong("version", "1 or more");
  if (bytes < 0) return fields.Wrong("bytes", "0 or more");
  if (!IsDigest(pointer.sha256)) return fields.Wrong("sha256", "64 hex digits");
  if (!IsDigest(pointer.package_sha256)) return fields.Wrong("package_sha256", "64 hex digits");
  pointer.bytes = static_cast<uint64_t>(bytes);
  return pointer;
}

Result<std::optional<std::string>> ReadPointer(const std::filesystem::path& folder) {
  const Result<FileContent> content = ReadFile(folder / kPointerFile, std::nullopt);
  if (content.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  if (!content.ok()) return content.status();
  return std::optional(
      std::string(reinterpret_cast<const char*>(content->memory.get()), content->size));
}

Result<FileContent> ReadWeights(const std::filesystem::path& folder,
                                const WeightsPointer& pointer) {
  const std::filesystem::path path = folder / pointer.FileName();
  AOTI_ASSIGN_OR_RETURN(FileContent content, ReadFile(path, pointer.bytes));
  if (const std::string digest = Sha256Of(content.bytes()); digest != pointer.sha256) {
    return InvalidArgument(path.string() + ": its content has the sha256 " + digest +
                           ", not the one in its name: push the weights again");
  }
  return content;
}

Status WriteStatus(const std::filesystem::path& folder, const WeightsStatus& status) {
  const Json json = {{"schema", kSchema},
                     {"version", status.pushed.version},
                     {"sha256", status.pushed.sha256},
                     {"state", status.swapped ? "swapped" : "refused"},
                     {"message", status.message},
                     {"serving", status.serving},
                     {"when", Now()}};
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  // A name of this process's own: servers on several hosts may share the folder.
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  std::string name = ".";
  name.append(kStatusFile).append(".").append(host).append(".").append(std::to_string(::getpid()));
  const std::filesystem::path beside = folder / name;
  const auto written = [&]() -> Status {
    AOTI_ASSIGN_OR_RETURN(const File file, Open(beside, O_WRONLY | O_CREAT | O_TRUNC));
    if (::fchmod(file.get(), 0644) != 0) {
      return ErrnoStatus(beside.string(), "cannot be made readable");
    }
    AOTI_RETURN_IF_ERROR(
        WriteAll(file.get(), std::as_bytes(std::span(text.data(), text.size())), beside.string()));
    AOTI_RETURN_IF_ERROR(Sync(beside));
    if (std::rename(beside.c_str(), (folder / kStatusFile).c_str()) != 0) {
      return ErrnoStatus((folder / kStatusFile).string(), "cannot be replaced");
    }
    return Sync(folder);
  }();
  if (!written.ok()) static_cast<void>(::unlink(beside.c_str()));  // there may be none
  return written;
}

}  // namespace aoti
