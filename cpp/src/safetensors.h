// The safetensors format: a length, a JSON header, and the tensors' bytes one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "datatypes.h"
#include "status.h"

namespace aoti {

// A tensor of a file; `data` lies in the file's memory, contiguous, at any alignment.
struct SafeTensor {
  std::string name;
  const Datatype* datatype = nullptr;  // never null
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// The tensors of the file whose whole content is `file`, in the order of their bytes. Everything
// that the header says is checked: the tensors fill the rest of the file without gap and without
// overlap, each as long as its type and shape make it. The error names the tensor. Unknown types
// are refused.
Result<std::vector<SafeTensor>> ReadSafetensors(std::span<const std::byte> file);

}  // namespace aoti
