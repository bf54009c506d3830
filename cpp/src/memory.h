// Memory that is kept and copied.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "tensor.h"

namespace aoti {

// Host memory that grows and never shrinks, aligned for vector instructions. What it holds does not
// survive growing.
class ScratchBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  // At least `bytes` of memory, valid until the next call. Never null. Throws std::bad_alloc.
  std::byte* Reserve(size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t capacity_ = 0;
};

// Copies between any two places and returns when the copy is done. Throws what torch throws when
// there is no such device.
void CopyBytes(void* to, Place to_place, const void* from, Place from_place, size_t bytes);

}  // namespace aoti
