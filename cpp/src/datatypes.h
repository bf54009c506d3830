// The element types that a package can take and give.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "triton_abi.h"

namespace aoti {

// One element type: as the manifest, the protocol and the server call it, and its size.
struct Datatype {
  std::string_view torch_name;  // "float32"
  std::string_view wire_name;   // "FP32"
  TRITONSERVER_DataType server;
  size_t bytes;
};

// All of them.
std::span<const Datatype> Datatypes();

// The type that the manifest calls `name`, null if there is none.
const Datatype* FindDatatype(std::string_view torch_name);

// "FP32" and so on; "BYTES" and "INVALID" for what no package takes.
std::string_view WireName(TRITONSERVER_DataType type);

}  // namespace aoti
