#include "checks.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "server.h"

namespace aoti {
namespace {

// `shape` without the axis of 1 that carries a tensor with no axes on the wire.
std::span<const int64_t> Squeeze(std::span<const int64_t> shape, const TensorSpec& spec) {
  const bool carried = spec.shape.empty() && shape.size() == 1 && shape[0] == 1;
  return carried ? shape.first(0) : shape;
}

// Bytes of `shape`, false when they are more than a size can say.
bool CountBytes(std::span<const int64_t> shape, size_t element, uint64_t& bytes) {
  // An axis of zero makes the whole zero, however large the others are.
  bytes = element;
  bool overflow = false;
  for (const int64_t size : shape) {
    if (size == 0) {
      bytes = 0;
      return true;
    }
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  }
  return !overflow;
}

}  // namespace

RequestChecker::RequestChecker(std::string model, const Manifest& manifest)
    : model_(std::move(model)), manifest_(manifest) {}

Status RequestChecker::Check(TRITONBACKEND_Request* request, CheckedRequest& checked) const {
  bool cancelled = false;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestIsCancelled(request, &cancelled)));
  if (cancelled) return {StatusCode::kCancelled, model_ + ": the request was cancelled"};
  AOTI_RETURN_IF_ERROR(CheckBaked(request));
  checked.inputs.assign(manifest_.inputs.size(), InputView());
  checked.symbols.assign(manifest_.symbols.size(), CheckedRequest::kUnbound);
  AOTI_RETURN_IF_ERROR(FindInputs(request, checked));
  // Those that are there bind the sizes of those that are not.
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
    if (checked.inputs[i].handle != nullptr) AOTI_RETURN_IF_ERROR(CheckInput(i, checked));
  }
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
    if (checked.inputs[i].handle == nullptr) AOTI_RETURN_IF_ERROR(FillInput(i, checked));
  }
  return {};
}

Status RequestChecker::CheckBaked(TRITONBACKEND_Request* request) const {
  if (manifest_.baked.empty()) return {};
  uint32_t count = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestParameterCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* key = nullptr;
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_STRING;
    const void* value = nullptr;
    AOTI_RETURN_IF_ERROR(
        FromServerError(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value)));
    for (const BakedScalar& baked : manifest_.baked) {
      if (baked.name != key || SaysTheSame(baked, type, value)) continue;
      return InvalidArgument(model_ + ": parameter '" + baked.name + "' is compiled in as " +
                             baked.text + ", got " + ParameterText(type, value) +
                             ": leave it out, or serve a package that is compiled for that value");
    }
  }
  return {};
}

Status RequestChecker::FindInputs(TRITONBACKEND_Request* request, CheckedRequest& checked) const {
  uint32_t count = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestInputCount(request, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestInputName(request, i, &name)));
    size_t index = 0;
    while (index < manifest_.inputs.size() && manifest_.inputs[index].name != name) ++index;
    if (index == manifest_.inputs.size()) return RefuseUnknown(name);
    if (checked.inputs[index].handle != nullptr) {
      return Wrong(manifest_.inputs[index], "is given twice");
    }
    AOTI_RETURN_IF_ERROR(
        FromServerError(TRITONBACKEND_RequestInput(request, name, &checked.inputs[index].handle)));
  }
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
    const TensorSpec& spec = manifest_.inputs[i];
    if (checked.inputs[i].handle == nullptr && !spec.fill) {
      return Wrong(spec, "is missing, expected " + std::string(spec.datatype->wire_name) + " " +
                             spec.ShapeText());
    }
  }
  return {};
}

Status RequestChecker::RefuseUnknown(const std::string& name) const {
  for (const BakedScalar& baked : manifest_.baked) {
    if (baked.name == name) {
      return InvalidArgument(model_ + ": input '" + name + "' is compiled in as " + baked.text +
                             " and is no tensor: leave it out");
    }
  }
  std::string known;
  for (const TensorSpec& spec : manifest_.inputs) {
    known += (known.empty() ? "'" : ", '") + spec.name + "'";
  }
  return InvalidArgument(model_ + ": unknown input '" + name + "', expected " + known);
}

Status RequestChecker::FillInput(size_t index, CheckedRequest& checked) const {
  const TensorSpec& spec = manifest_.inputs[index];
  InputView& view = checked.inputs[index];
  checked.filled.resize(manifest_.inputs.size());
  std::vector<int64_t>& shape = checked.filled[index];
  shape.resize(spec.shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const Dim& dim = spec.shape[axis];
    shape[axis] = dim.kind == Dim::Kind::kSymbol ? checked.symbols[dim.symbol] : dim.size;
  }
  view.shape = shape;
  if (CountBytes(shape, spec.datatype->bytes, view.bytes)) return {};
  return Wrong(spec, "is left out, and its default in the shape " + ShapeText(shape) +
                         " is larger than any memory");
}

Status RequestChecker::CheckInput(size_t index, CheckedRequest& checked) const {
  const TensorSpec& spec = manifest_.inputs[index];
  InputView& view = checked.inputs[index];
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  const int64_t* shape = nullptr;
  uint32_t rank = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_InputProperties(
      view.handle, nullptr, &datatype, &shape, &rank, &view.bytes, &view.buffers)));
  const std::span<const int64_t> sent(shape, rank);
  view.shape = Squeeze(sent, spec);
  if (datatype != spec.datatype->server) {
    return Wrong(spec, "expected datatype " + std::string(spec.datatype->wire_name) + ", got " +
                           std::string(WireName(datatype)));
  }
  if (view.shape.size() != spec.shape.size()) {
    return Wrong(spec, "expected shape " + spec.ShapeText() + ", got " + ShapeText(sent));
  }
  for (size_t axis = 0; axis < view.shape.size(); ++axis) {
    const Dim& dim = spec.shape[axis];
    const int64_t size = view.shape[axis];
    if (dim.kind == Dim::Kind::kSymbol) {
      const Symbol& symbol = manifest_.symbols[dim.symbol];
      int64_t& bound = checked.symbols[dim.symbol];
      const bool in_range = size >= symbol.min && size <= symbol.max;
      if (bound == CheckedRequest::kUnbound && in_range) bound = size;
      if (!in_range || bound != size) return WrongSize(index, axis, size, checked);
    } else if (size != dim.size) {
      return WrongSize(index, axis, size, checked);
    }
  }
  uint64_t expected = 0;
  if (!CountBytes(view.shape, spec.datatype->bytes, expected)) {
    return Wrong(spec, "shape " + ShapeText(sent) + " of " + std::string(spec.datatype->wire_name) +
                           " is larger than any memory, got " + std::to_string(view.bytes) +
                           " bytes");
  }
  if (expected != view.bytes) {
    return Wrong(spec, "shape " + ShapeText(sent) + " of " + std::string(spec.datatype->wire_name) +
                           " takes " + std::to_string(expected) + " bytes, got " +
                           std::to_string(view.bytes));
  }
  return {};
}

Status RequestChecker::Wrong(const TensorSpec& spec, const std::string& what) const {
  return InvalidArgument(model_ + ": input '" + spec.name + "' " + what);
}

Status RequestChecker::WrongSize(size_t index, size_t axis, int64_t size,
                                 const CheckedRequest& checked) const {
  const TensorSpec& spec = manifest_.inputs[index];
  const Dim& dim = spec.shape[axis];
  const std::string got = "expected shape " + spec.ShapeText() + ", got " +
                          ShapeText(checked.inputs[index].shape) + ": dimension " +
                          std::to_string(axis);
  if (dim.kind != Dim::Kind::kSymbol) {
    return Wrong(spec, got + " must be " + dim.text + ", not " + std::to_string(size));
  }
  const Symbol& symbol = manifest_.symbols[dim.symbol];
  const int64_t bound = checked.symbols[dim.symbol];
  if (bound == CheckedRequest::kUnbound) {
    return Wrong(spec, got + " (" + symbol.name + ") must be in " + std::to_string(symbol.min) +
                           ".." + std::to_string(symbol.max) + ", not " + std::to_string(size));
  }
  std::string other;
  for (size_t i = 0; i <= index && other.empty(); ++i) {
    const auto& shape = manifest_.inputs[i].shape;
    if (std::any_of(shape.begin(), shape.end(),
                    [&dim](const Dim& d) { return d.IsSymbol(dim.symbol); })) {
      other = manifest_.inputs[i].name;
    }
  }
  return Wrong(spec, got + " (" + symbol.name + ") is " + std::to_string(size) + ", but input '" +
                         other + "' has " + symbol.name + " = " + std::to_string(bound));
}

}  // namespace aoti
