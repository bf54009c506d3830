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
// more) and lies in the server's memory, valid until the request is released.
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
};

// Checks requests against one manifest. Safe for any number of threads.
//
// The server's core counts inputs and compares config.pbtxt; this finds what it lets pass: another
// input in a required one's place, sizes out of the compiled range, sizes that differ between
// inputs, and shapes that do not fit the bytes that came.
class RequestChecker {
 public:
  // `model` is the name that messages begin with. `manifest` must outlive this.
  RequestChecker(std::string model, const Manifest& manifest);

  // INVALID_ARG or CANCELLED when the request must not run; then `checked` has no meaning. Under 5
  // microseconds for five inputs.
  Status Check(TRITONBACKEND_Request* request, CheckedRequest& checked) const;

 private:
  Status CheckInput(size_t index, CheckedRequest& checked) const;
  Status FindInputs(TRITONBACKEND_Request* request, CheckedRequest& checked) const;
  Status RefuseUnknown(TRITONBACKEND_Request* request, uint32_t count) const;
  Status RefuseTwice(TRITONBACKEND_Request* request, uint32_t count) const;
  Status Wrong(const TensorSpec& spec, const std::string& what) const;
  Status WrongSize(size_t index, size_t axis, int64_t size, const CheckedRequest& checked) const;

  const std::string model_;
  const Manifest& manifest_;
};

}  // namespace aoti
