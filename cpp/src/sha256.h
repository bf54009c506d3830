// SHA-256, as FIPS 180-4 defines it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "status.h"

namespace aoti {

// Takes bytes piece by piece. The digest is that of all pieces together.
class Sha256 {
 public:
  Sha256();
  void Add(std::span<const std::byte> bytes);
  // 64 hex digits. Call once, after the last piece.
  std::string Finish();

  // Without the CPU's own instructions for it, which are used where there are any. For tests.
  static Sha256 Portable();

 private:
  using Compress = void (*)(std::array<uint32_t, 8>&, const std::byte*, size_t blocks);
  explicit Sha256(Compress compress);

  Compress compress_;
  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> rest_{};  // of the last block that is not whole
  size_t rest_bytes_ = 0;
  uint64_t bytes_ = 0;
};

std::string Sha256Of(std::span<const std::byte> bytes);

// Of what the open file `file` holds, from its first byte to its end. `name` is for the error.
Result<std::string> Sha256OfFile(int file, const std::string& name);

}  // namespace aoti
