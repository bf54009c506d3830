#include "datatypes.h"

#include <array>

namespace aoti {
namespace {

constexpr std::array kDatatypes{
    Datatype{"bool", "BOOL", TRITONSERVER_TYPE_BOOL, 1},
    Datatype{"uint8", "UINT8", TRITONSERVER_TYPE_UINT8, 1},
    Datatype{"uint16", "UINT16", TRITONSERVER_TYPE_UINT16, 2},
    Datatype{"uint32", "UINT32", TRITONSERVER_TYPE_UINT32, 4},
    Datatype{"uint64", "UINT64", TRITONSERVER_TYPE_UINT64, 8},
    Datatype{"int8", "INT8", TRITONSERVER_TYPE_INT8, 1},
    Datatype{"int16", "INT16", TRITONSERVER_TYPE_INT16, 2},
    Datatype{"int32", "INT32", TRITONSERVER_TYPE_INT32, 4},
    Datatype{"int64", "INT64", TRITONSERVER_TYPE_INT64, 8},
    Datatype{"float16", "FP16", TRITONSERVER_TYPE_FP16, 2},
    Datatype{"bfloat16", "BF16", TRITONSERVER_TYPE_BF16, 2},
    Datatype{"float32", "FP32", TRITONSERVER_TYPE_FP32, 4},
    Datatype{"float64", "FP64", TRITONSERVER_TYPE_FP64, 8},
};

}  // namespace

std::span<const Datatype> Datatypes() {
  return kDatatypes;
}

const Datatype* FindDatatype(std::string_view torch_name) {
  for (const Datatype& type : kDatatypes) {
    if (type.torch_name == torch_name) return &type;
  }
  return nullptr;
}

std::string_view WireName(TRITONSERVER_DataType server) {
  for (const Datatype& type : kDatatypes) {
    if (type.server == server) return type.wire_name;
  }
  return server == TRITONSERVER_TYPE_BYTES ? "BYTES" : "INVALID";
}

}  // namespace aoti
