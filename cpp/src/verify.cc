#include "verify.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "files.h"
#include "sha256.h"

namespace aoti {
namespace {

namespace fs = std::filesystem;

constexpr char kMend[] = ": write the model again with `aoti-pack`";

// What changes when a file's contents do: device, inode, size, and the times of both.
using Identity = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Identity IdentityOf(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, Nanoseconds(status.st_mtim),
          Nanoseconds(status.st_ctim)};
}

// The digests of the files that this process has read.
class KnownDigests {
 public:
  std::optional<std::string> Find(const Identity& identity) {
    const std::lock_guard lock(mutex_);
    const auto found = digests_.find(identity);
    return found == digests_.end() ? std::nullopt : std::optional(found->second);
  }

  void Remember(const Identity& identity, std::string digest) {
    const std::lock_guard lock(mutex_);
    // A server that has seen this many files has mostly seen them go.
    if (digests_.size() >= kMost) digests_.clear();
    digests_.insert_or_assign(identity, std::move(digest));
  }

 private:
  static constexpr size_t kMost = 65536;
  std::mutex mutex_;
  std::map<Identity, std::string> digests_;
};

KnownDigests& Known() {
  static KnownDigests known;
  return known;
}

// Whether a file that changed at `changed` could change again without its times showing it: they
// are coarse, a second and more on some file systems.
bool TooFresh(const timespec& changed) {
  constexpr int64_t kCoarse = 2'000'000'000;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now) - Nanoseconds(changed) < kCoarse;
}

Status NotThatFile(const fs::path& path, const std::string& expected, const std::string& found) {
  return InvalidArgument(path.string() + " is not the file that the manifest describes: expected " +
                         expected + ", found " + found + kMend);
}

std::string Short(std::string_view digest) {
  return "sha256 " + std::string(digest.substr(0, 12)) + "…";
}

// Returns the bytes that were read.
Result<uint64_t> VerifyFile(const fs::path& folder, const PackageFile& file) {
  const fs::path path = folder / file.path;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) {
    return Status(StatusCode::kNotFound, path.string() + " is missing or cannot be read (" +
                                             error.message() + "), and the manifest lists it" +
                                             kMend);
  }
  if (std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first != folder.end()) {
    return InvalidArgument(path.string() + " is a link that leads out of the model's folder, to " +
                           real.string() + ": put the file itself there");
  }
  // Not blocking: what lies there may be a pipe.
  AOTI_ASSIGN_OR_RETURN(const File opened, Open(real, O_RDONLY | O_NONBLOCK | O_NOFOLLOW));
  struct stat before{};
  if (::fstat(opened.get(), &before) != 0) return ErrnoStatus(path.string(), "cannot be read");
  if (!S_ISREG(before.st_mode)) {
    return InvalidArgument(path.string() + " is not a plain file" + kMend);
  }
  if (static_cast<uint64_t>(before.st_size) != file.bytes) {
    return NotThatFile(path, std::to_string(file.bytes) + " bytes",
                       std::to_string(before.st_size) + " bytes");
  }
  std::optional<std::string> digest = Known().Find(IdentityOf(before));
  const uint64_t read = digest ? 0 : file.bytes;
  if (!digest) {
    AOTI_ASSIGN_OR_RETURN(digest, Sha256OfFile(opened.get(), path.string()));
    struct stat after{};
    if (::fstat(opened.get(), &after) != 0) return ErrnoStatus(path.string(), "cannot be read");
    if (IdentityOf(after) != IdentityOf(before)) {
      return InvalidArgument(path.string() +
                             " changed while it was read: load the model when it is written");
    }
    if (!TooFresh(after.st_ctim)) Known().Remember(IdentityOf(after), *digest);
  }
  if (*digest == file.sha256) return read;
  return NotThatFile(path, Short(file.sha256), Short(*digest));
}

// Nothing but listed files and folders lies in the package's folder.
Status VerifyNoMore(const fs::path& folder, const std::vector<PackageFile>& files,
                    const std::string& package) {
  std::error_code error;
  const fs::path inside = fs::canonical(folder / package, error);
  if (error) {
    return Internal((folder / package).string() + " cannot be read: " + error.message());
  }
  if (!fs::is_directory(inside, error)) return {};
  std::set<fs::path> listed;
  for (const PackageFile& file : files) listed.insert(fs::canonical(folder / file.path, error));
  fs::recursive_directory_iterator entry(inside, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (fs::is_directory(entry->symlink_status(unknown))) continue;
    if (!listed.contains(entry->path())) {
      return InvalidArgument(entry->path().string() +
                             " is not among the files that the manifest lists: remove it, or "
                             "write the model again with `aoti-pack`");
    }
  }
  if (error) return Internal(inside.string() + " cannot be read: " + error.message());
  return {};
}

// `path` relative to the package's, "." for the package itself; nothing when it lies elsewhere.
std::optional<std::string> InPackage(const std::string& package, const std::string& path) {
  const fs::path relative = (fs::path("/") / path).lexically_relative(fs::path("/") / package);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative.generic_string();
}

}  // namespace

Result<uint64_t> VerifyFiles(const fs::path& folder, const std::vector<PackageFile>& files,
                             const std::string& package) {
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (error) return Internal(folder.string() + " cannot be read: " + error.message());
  const bool any = std::any_of(files.begin(), files.end(), [&package](const PackageFile& file) {
    return InPackage(package, file.path).has_value();
  });
  if (!any) {
    return InvalidArgument("manifest.files: none of them is of the package at \"" + package + "\"" +
                           kMend);
  }
  uint64_t read = 0;
  for (const PackageFile& file : files) {
    AOTI_ASSIGN_OR_RETURN(const uint64_t bytes, VerifyFile(real, file));
    read += bytes;
  }
  AOTI_RETURN_IF_ERROR(VerifyNoMore(real, files, package));
  return read;
}

std::string PackageDigest(const std::vector<PackageFile>& files, const std::string& package) {
  std::map<std::string, std::string> inside;
  for (const PackageFile& file : files) {
    if (const auto path = InPackage(package, file.path)) inside[*path] = file.sha256;
  }
  std::string text;
  for (const auto& [path, digest] : inside) text += digest + ' ' + path + '\0';
  return Sha256Of(std::as_bytes(std::span(text)));
}

}  // namespace aoti
