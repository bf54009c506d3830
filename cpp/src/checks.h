// What a request must be before the model sees it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "manifest.h"
#include "status.h"
#include "triton_abi.h"

namespace aoti {

// One input of a checked request. The shape is the model's (squeezed where the wire needs an axis
// more) and lies in the server's memory, valid until the request is released. An input that the
// request left out has no handle, the shape that the other inputs tell, and the bytes that its
// default fills.
struct InputView {
  TRITONBACKEND_Input* handle = nullptr;
  std::span<const int64_t> shape;
  uint64_t bytes = 0;
  uint32_t buffers = 0;
};

// A request that fits the manifest. Reused from request to request, so that a check allocates
// nothing.
struct CheckedRequest {
  std::vector<InputView> inputs;  // in the manifest's order
  std::vector<int64_t> symbols;   // the size of each symbol, kUnbound where no input has it
  static constexpr int64_t kUnbound = -1;
  std::vector<std::vector<int64_t>> filled;  // the shapes of inputs that the request left out
};

// Checks requests against one manifest. Safe for any number of threads.
//
// The server's core counts inputs and compares config.pbtxt; this finds what it lets pass: another
// input in a required one's place, sizes out of the compiled range, sizes that differ between
// inputs, shapes that do not fit the bytes that came, and a parameter that says another value than
// the one that was compiled in.
class RequestChecker {
 public:
  // `model` is the name that messages begin with. `manifest` must outlive this.
  RequestChecker(std::string model, const Manifest& manifest);

  // INVALID_ARG or CANCELLED when the request must not run; then `checked` has no meaning. Under 5
  // microseconds for five inputs.
  Status Check(TRITONBACKEND_Request* request, CheckedRequest& checked) const;

 private:
  Status CheckInput(size_t index, CheckedRequest& checked) const;
  Status CheckBaked(TRITONBACKEND_Request* request) const;
  Status FindInputs(TRITONBACKEND_Request* request, CheckedRequest& checked) const;
  Status FillInput(size_t index, CheckedRequest& checked) const;
  Status RefuseUnknown(const std::string& name) const;
  Status Wrong(const TensorSpec& spec, const std::string& what) const;
  Status WrongSize(size_t index, size_t axis, int64_t size, const CheckedRequest& checked) const;

  const std::string model_;
  const Manifest& manifest_;
};

}  // namespace aoti
