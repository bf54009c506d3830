// Files, with errors that name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "status.h"

namespace aoti {

// An open file, closed when this goes.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File();

  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// Opens with open(2)'s `flags`; a new file gets mode 0600. NOT_FOUND or INTERNAL that names `path`.
Result<File> Open(const std::filesystem::path& path, int flags);

// Reads up to `into.size()` bytes at `offset`; 0 at the end. `name` is for the error.
Result<size_t> ReadSome(int file, uint64_t offset, std::span<std::byte> into,
                        const std::string& name);

Status WriteAll(int file, std::span<const std::byte> bytes, const std::string& name);

// Makes what was written to a file or a folder outlast a crash of the machine.
Status Sync(const std::filesystem::path& path);

// "`name`: `doing`: No such file or directory", by errno.
Status ErrnoStatus(const std::string& name, const std::string& doing);

// `text` in quotes, for a message: what cannot be printed is escaped, what is long is cut.
std::string Quoted(std::string_view text);

}  // namespace aoti
