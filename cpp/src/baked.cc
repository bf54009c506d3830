#include "baked.h"

#include <string_view>

namespace aoti {
namespace {

bool SameNumber(int64_t whole, double number) {
  // Every double of that size and more is beyond int64, and the cast back is exact below it.
  constexpr double kBeyond = 9223372036854775808.0;
  return number >= -kBeyond && number < kBeyond && static_cast<int64_t>(number) == whole &&
         static_cast<double>(static_cast<int64_t>(number)) == number;
}

}  // namespace

Result<std::vector<BakedScalar>> ReadBaked(const Fields& root) {
  AOTI_ASSIGN_OR_RETURN(const Json* list, root.List("baked"));
  std::vector<BakedScalar> all;
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields fields((*list)[i], root.Path("baked") + "[" + std::to_string(i) + "]");
    BakedScalar baked;
    AOTI_ASSIGN_OR_RETURN(baked.name, fields.String("name"));
    for (const BakedScalar& other : all) {
      if (other.name == baked.name) {
        return InvalidArgument(root.Path("baked") + ": '" + baked.name + "' stands twice");
      }
    }
    const Json* value = fields.Find("value");
    baked.text = value == nullptr ? "null" : Show(*value);
    if (value == nullptr) {
      baked.value = std::monostate();
    } else if (value->is_boolean()) {
      baked.value = value->get<bool>();
    } else if (value->is_string()) {
      baked.value = value->get<std::string>();
    } else if (fields.Int("value").ok()) {
      baked.value = value->get<int64_t>();
    } else if (value->is_number()) {
      baked.value = value->get<double>();
    } else {
      return fields.Wrong("value", "a number, a bool, a text or null");
    }
    all.push_back(std::move(baked));
  }
  return all;
}

bool SaysTheSame(const BakedScalar& baked, TRITONSERVER_ParameterType type, const void* value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_BOOL: {
      const bool* known = std::get_if<bool>(&baked.value);
      return known != nullptr && *known == *static_cast<const bool*>(value);
    }
    case TRITONSERVER_PARAMETER_INT: {
      const int64_t given = *static_cast<const int64_t*>(value);
      if (const int64_t* known = std::get_if<int64_t>(&baked.value)) return *known == given;
      const double* known = std::get_if<double>(&baked.value);
      return known != nullptr && SameNumber(given, *known);
    }
    case TRITONSERVER_PARAMETER_DOUBLE: {
      const double given = *static_cast<const double*>(value);
      if (const double* known = std::get_if<double>(&baked.value)) return *known == given;
      const int64_t* known = std::get_if<int64_t>(&baked.value);
      return known != nullptr && SameNumber(*known, given);
    }
    case TRITONSERVER_PARAMETER_STRING: {
      const std::string* known = std::get_if<std::string>(&baked.value);
      return known != nullptr && *known == static_cast<const char*>(value);
    }
    default:
      return false;
  }
}

std::string ParameterText(TRITONSERVER_ParameterType type, const void* value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_BOOL:
      return Show(*static_cast<const bool*>(value));
    case TRITONSERVER_PARAMETER_INT:
      return Show(*static_cast<const int64_t*>(value));
    case TRITONSERVER_PARAMETER_DOUBLE:
      return Show(*static_cast<const double*>(value));
    case TRITONSERVER_PARAMETER_STRING:
      return Show(static_cast<const char*>(value));
    default:
      return "bytes";
  }
}

}  // namespace aoti
