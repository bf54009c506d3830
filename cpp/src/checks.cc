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
  checked.inputs.resize(manifest_.inputs.size());
  checked.symbols.assign(manifest_.symbols.size(), CheckedRequest::kUnbound);
  AOTI_RETURN_IF_ERROR(FindInputs(request, checked));
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
    AOTI_RETURN_IF_ERROR(CheckInput(i, checked));
  }
  return {};
}

Status RequestChecker::FindInputs(TRITONBACKEND_Request* request, CheckedRequest& checked) const {
  uint32_t count = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestInputCount(request, &count)));
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
    const TensorSpec& spec = manifest_.inputs[i];
    if (auto* error =
            TRITONBACKEND_RequestInput(request, spec.name.c_str(), &checked.inputs[i].handle)) {
      TRITONSERVER_ErrorDelete(error);
      // An input under another name is the likelier mistake, and names both sides.
      AOTI_RETURN_IF_ERROR(RefuseUnknown(request, count));
      return Wrong(spec, "is missing, expected " + std::string(spec.datatype->wire_name) + " " +
                             spec.ShapeText());
    }
  }
  if (count != manifest_.inputs.size()) {
    AOTI_RETURN_IF_ERROR(RefuseUnknown(request, count));
    return RefuseTwice(request, count);
  }
  return {};
}

Status RequestChecker::RefuseTwice(TRITONBACKEND_Request* request, uint32_t count) const {
  std::vector<std::string_view> names;
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestInputName(request, i, &name)));
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return InvalidArgument(model_ + ": input '" + name + "' is given twice");
    }
    names.emplace_back(name);
  }
  return {};
}

Status RequestChecker::RefuseUnknown(TRITONBACKEND_Request* request, uint32_t count) const {
  std::string known;
  for (const TensorSpec& spec : manifest_.inputs) {
    known += (known.empty() ? "'" : ", '") + spec.name + "'";
  }
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestInputName(request, i, &name)));
    const bool found = std::any_of(manifest_.inputs.begin(), manifest_.inputs.end(),
                                   [name](const TensorSpec& spec) { return spec.name == name; });
    if (!found) {
      return InvalidArgument(model_ + ": unknown input '" + name + "', expected " + known);
    }
  }
  return {};
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
