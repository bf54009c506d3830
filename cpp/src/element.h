// One element of a tensor, as the value that fills an input which a request leaves out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "datatypes.h"
#include "json.h"
#include "status.h"

namespace aoti {

// The first Datatype::bytes of `bytes` hold the value.
struct Element {
  static constexpr size_t kLargest = 8;
  std::array<std::byte, kLargest> bytes{};
};

// `value` in the bytes of `datatype`: integers exactly, floating ones rounded as torch rounds them.
// INVALID_ARG "expected …, got …" for what the type cannot hold.
Result<Element> ToElement(const Json& value, const Datatype& datatype);

// Writes `element` over `bytes` bytes, which are a whole number of elements.
void FillElements(std::byte* memory, uint64_t bytes, const Element& element,
                  const Datatype& datatype);

}  // namespace aoti
