#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace aoti {

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<File> Open(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (descriptor < 0) return ErrnoStatus(path.string(), "cannot be opened");
  return File(descriptor);
}

Result<size_t> ReadSome(int file, uint64_t offset, std::span<std::byte> into,
                        const std::string& name) {
  for (;;) {
    const ssize_t got = ::pread(file, into.data(), into.size(), static_cast<off_t>(offset));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return ErrnoStatus(name, "cannot be read");
  }
}

Status WriteAll(int file, std::span<const std::byte> bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file, bytes.data(), bytes.size());
    if (wrote >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(wrote));
    } else if (errno != EINTR) {
      return ErrnoStatus(name, "cannot be written");
    }
  }
  return {};
}

Status Sync(const std::filesystem::path& path) {
  AOTI_ASSIGN_OR_RETURN(const File file, Open(path, O_RDONLY));
  if (::fsync(file.get()) != 0) return ErrnoStatus(path.string(), "cannot be written to disk");
  return {};
}

Status ErrnoStatus(const std::string& name, const std::string& doing) {
  const int error = errno;
  const StatusCode code = error == ENOENT ? StatusCode::kNotFound : StatusCode::kInternal;
  return Status(code, name + ": " + doing + ": " + std::generic_category().message(error));
}

std::string Quoted(std::string_view text) {
  constexpr size_t kLongest = 200;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      quoted += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + (text.size() > kLongest ? "…'" : "'");
}

}  // namespace aoti
