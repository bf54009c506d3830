#include "scalar_types.h"

#include <array>
#include <stdexcept>
#include <string>

namespace aoti {
namespace {

struct TypePair {
  std::string_view torch_name;
  at::ScalarType type;
};

constexpr std::array kTypes{
    TypePair{"bool", at::kBool},         TypePair{"uint8", at::kByte},
    TypePair{"uint16", at::kUInt16},     TypePair{"uint32", at::kUInt32},
    TypePair{"uint64", at::kUInt64},     TypePair{"int8", at::kChar},
    TypePair{"int16", at::kShort},       TypePair{"int32", at::kInt},
    TypePair{"int64", at::kLong},        TypePair{"float16", at::kHalf},
    TypePair{"bfloat16", at::kBFloat16}, TypePair{"float32", at::kFloat},
    TypePair{"float64", at::kDouble},
};

}  // namespace

at::ScalarType ToScalarType(const Datatype& datatype) {
  for (const TypePair& pair : kTypes) {
    if (pair.torch_name == datatype.torch_name) return pair.type;
  }
  throw std::logic_error("no torch type for " + std::string(datatype.torch_name));
}

const Datatype* FromScalarType(at::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.type == type) return FindDatatype(pair.torch_name);
  }
  return nullptr;
}

}  // namespace aoti
