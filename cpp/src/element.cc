#include "element.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace aoti {
namespace {

template <typename T>
Element Bytes(T value) {
  static_assert(sizeof(T) <= Element::kLargest);
  Element element;
  std::memcpy(element.bytes.data(), &value, sizeof(T));
  return element;
}

Status Wrong(const std::string& expected, const Json& value) {
  return InvalidArgument("expected " + expected + ", got " + Show(value));
}

template <typename T>
Result<Element> Integer(const Json& value) {
  using Limits = std::numeric_limits<T>;
  bool fits = false;
  if (value.is_number_unsigned()) {
    fits = value.get<uint64_t>() <= static_cast<uint64_t>(Limits::max());
  } else if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    // What is negative here is no unsigned number of JSON's.
    fits = number >= 0 ? static_cast<uint64_t>(number) <= static_cast<uint64_t>(Limits::max())
                       : std::is_signed_v<T> && number >= static_cast<int64_t>(Limits::min());
  }
  if (fits) return Bytes(value.get<T>());
  return Wrong("a whole number from " + std::to_string(Limits::min()) + " to " +
                   std::to_string(Limits::max()),
               value);
}

template <typename T>
Result<Element> Floating(const Json& value, const Datatype& datatype) {
  if (value.is_number()) {
    // Through float where the type is narrower, as torch's own scalars go.
    const double number = value.get<double>();
    const T rounded = sizeof(T) < sizeof(float) ? static_cast<T>(static_cast<float>(number))
                                                : static_cast<T>(number);
    if (std::isfinite(static_cast<double>(rounded))) return Bytes(rounded);
  }
  return Wrong("a finite number that " + std::string(datatype.torch_name) + " holds", value);
}

}  // namespace

Result<Element> ToElement(const Json& value, const Datatype& datatype) {
  switch (datatype.server) {
    case TRITONSERVER_TYPE_BOOL:
      if (!value.is_boolean()) return Wrong("true or false", value);
      return Bytes(static_cast<uint8_t>(value.get<bool>()));
    case TRITONSERVER_TYPE_UINT8:
      return Integer<uint8_t>(value);
    case TRITONSERVER_TYPE_UINT16:
      return Integer<uint16_t>(value);
    case TRITONSERVER_TYPE_UINT32:
      return Integer<uint32_t>(value);
    case TRITONSERVER_TYPE_UINT64:
      return Integer<uint64_t>(value);
    case TRITONSERVER_TYPE_INT8:
      return Integer<int8_t>(value);
    case TRITONSERVER_TYPE_INT16:
      return Integer<int16_t>(value);
    case TRITONSERVER_TYPE_INT32:
      return Integer<int32_t>(value);
    case TRITONSERVER_TYPE_INT64:
      return Integer<int64_t>(value);
    case TRITONSERVER_TYPE_FP16:
      return Floating<c10::Half>(value, datatype);
    case TRITONSERVER_TYPE_BF16:
      return Floating<c10::BFloat16>(value, datatype);
    case TRITONSERVER_TYPE_FP32:
      return Floating<float>(value, datatype);
    case TRITONSERVER_TYPE_FP64:
      return Floating<double>(value, datatype);
    default:
      return Wrong("no value of " + std::string(datatype.torch_name), value);
  }
}

void FillElements(std::byte* memory, uint64_t bytes, const Element& element,
                  const Datatype& datatype) {
  if (bytes == 0) return;
  std::memcpy(memory, element.bytes.data(), datatype.bytes);
  // What is filled already is the pattern of what follows, twice as long each time.
  for (uint64_t done = datatype.bytes; done < bytes;) {
    const uint64_t more = std::min(done, bytes - done);
    std::memcpy(memory + done, memory, more);
    done += more;
  }
}

}  // namespace aoti
