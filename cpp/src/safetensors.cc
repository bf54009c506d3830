#include "safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "files.h"
#include "json.h"

namespace aoti {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // what the format's own readers accept
constexpr int kDeepest = 4;                       // {"name": {"shape": [...]}}, and one to spare
constexpr std::string_view kMetadata = "__metadata__";

struct TypeName {
  std::string_view name;
  std::string_view torch_name;
};

constexpr std::array kTypeNames{
    TypeName{"BOOL", "bool"},   TypeName{"U8", "uint8"},      TypeName{"I8", "int8"},
    TypeName{"U16", "uint16"},  TypeName{"I16", "int16"},     TypeName{"U32", "uint32"},
    TypeName{"I32", "int32"},   TypeName{"U64", "uint64"},    TypeName{"I64", "int64"},
    TypeName{"F16", "float16"}, TypeName{"BF16", "bfloat16"}, TypeName{"F32", "float32"},
    TypeName{"F64", "float64"},
};

const Datatype* FindType(std::string_view name) {
  for (const TypeName& type : kTypeNames) {
    if (type.name == name) return FindDatatype(type.torch_name);
  }
  return nullptr;
}

// Parses the header. JSON's own rules let a name stand twice, which here could hide a tensor.
Result<Json> ParseHeader(std::string_view text) {
  std::set<std::string> names;
  std::optional<std::string> twice;
  bool deep = false;
  const auto look = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepest) deep = true;
    if (depth == 1 && event == Json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names.insert(name).second) twice = name;
    }
    return !deep;
  };
  try {
    Json header = Json::parse(text.begin(), text.end(), look);
    if (deep) return InvalidArgument("the header is nested too deeply");
    if (!header.is_object()) return InvalidArgument("the header is no JSON object");
    if (twice) {
      return InvalidArgument("tensor " + Quoted(*twice) + " stands twice in the header");
    }
    return header;
  } catch (const Json::exception& error) {
    return InvalidArgument(std::string("the header is not JSON: ") + error.what());
  }
}

Status CheckMetadata(const Json& metadata) {
  const bool texts =
      metadata.is_object() && std::all_of(metadata.begin(), metadata.end(),
                                          [](const Json& value) { return value.is_string(); });
  return texts ? Status() : InvalidArgument("__metadata__ is no object of strings");
}

// The bytes that a tensor of `shape` takes; false when that overflows.
bool SizeInBytes(const std::vector<int64_t>& shape, size_t element, uint64_t& bytes) {
  bytes = element;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return false;
  }
  return true;
}

Result<SafeTensor> ReadTensor(const std::string& name, const Json& value,
                              std::span<const std::byte> data) {
  const Fields fields(value, "tensor " + Quoted(name));
  AOTI_ASSIGN_OR_RETURN(const std::string type, fields.String("dtype"));
  AOTI_ASSIGN_OR_RETURN(const Json* shape, fields.List("shape"));
  AOTI_ASSIGN_OR_RETURN(const Json* offsets, fields.List("data_offsets"));
  if (value.size() != 3) {
    return InvalidArgument("tensor " + Quoted(name) +
                           " has other fields than dtype, shape and data_offsets");
  }
  SafeTensor tensor;
  tensor.name = name;
  tensor.datatype = FindType(type);
  if (tensor.datatype == nullptr) {
    return Unsupported("tensor " + Quoted(name) + " has the unknown dtype " + Quoted(type));
  }
  for (const Json& size : *shape) {
    if (!size.is_number_integer() || size < 0 || size > INT64_MAX) {
      return fields.Wrong("shape", "sizes of 0 or more");
    }
    tensor.shape.push_back(size.get<int64_t>());
  }
  const auto is_offset = [&data](const Json& offset) {
    return offset.is_number_unsigned() && offset.get<uint64_t>() <= data.size();
  };
  if (offsets->size() != 2 || !is_offset((*offsets)[0]) || !is_offset((*offsets)[1]) ||
      (*offsets)[0] > (*offsets)[1]) {
    return fields.Wrong("data_offsets", "two rising offsets within the " +
                                            std::to_string(data.size()) + " bytes of data");
  }
  const auto begin = (*offsets)[0].get<size_t>();
  tensor.data = data.subspan(begin, (*offsets)[1].get<size_t>() - begin);
  uint64_t bytes = 0;
  if (!SizeInBytes(tensor.shape, tensor.datatype->bytes, bytes) || bytes != tensor.data.size()) {
    return InvalidArgument("tensor " + Quoted(name) + " of " + type + " " + Show(*shape) + " has " +
                           std::to_string(tensor.data.size()) + " bytes of data");
  }
  return tensor;
}

}  // namespace

Result<std::vector<SafeTensor>> ReadSafetensors(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return InvalidArgument("a safetensors file has 8 bytes or more, this one " +
                           std::to_string(file.size()));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  }
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (length > std::min<uint64_t>(rest.size(), kLongestHeader)) {
    return InvalidArgument("a header of " + std::to_string(length) + " bytes is said to stand in " +
                           std::to_string(rest.size()) + " bytes: no safetensors file, or cut off");
  }
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), length);
  AOTI_ASSIGN_OR_RETURN(const Json header, ParseHeader(text));
  const std::span<const std::byte> data = rest.subspan(length);
  std::vector<SafeTensor> tensors;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      AOTI_RETURN_IF_ERROR(CheckMetadata(value));
      continue;
    }
    AOTI_ASSIGN_OR_RETURN(SafeTensor tensor, ReadTensor(name, value, data));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  const std::byte* next = data.data();
  for (const SafeTensor& tensor : tensors) {
    if (tensor.data.data() != next) {
      return InvalidArgument("tensor " + Quoted(tensor.name) +
                             " does not begin where the one before it ends");
    }
    next += tensor.data.size();
  }
  if (next != data.data() + data.size()) {
    return InvalidArgument("the file has " + std::to_string(data.data() + data.size() - next) +
                           " bytes after its last tensor");
  }
  return tensors;
}

}  // namespace aoti
