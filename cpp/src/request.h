// A request of the server's and its one response.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "statistics.h"
#include "status.h"
#include "tensor.h"
#include "triton_abi.h"

namespace aoti {

// The part of a run's output that one request gets.
struct OutputSlice {
  const std::string* name = nullptr;
  const Datatype* datatype = nullptr;
  std::span<const int64_t> shape;
  const std::byte* data = nullptr;
  Place place;
  size_t bytes = 0;
};

// Owns a request: whatever happens, it is answered once, counted once and released once. A request
// that nobody answered is answered with an error when this object goes.
class Request {
 public:
  Request(TRITONBACKEND_Request* handle, const Statistics& statistics) noexcept
      : handle_(handle), statistics_(&statistics) {}
  Request(Request&& other) noexcept;
  Request& operator=(Request&&) = delete;
  ~Request();

  TRITONBACKEND_Request* handle() const { return handle_; }

  // Answers with an error. Ignored if the request is answered already.
  void Fail(const Status& status) noexcept;

  // Answers with those of `outputs` that the request asks for.
  void Answer(std::span<const OutputSlice> outputs) noexcept;

  // Counts and releases the request, after its answer. The handle and everything reached through it
  // are gone then.
  void Close(const Timeline& times) noexcept;

 private:
  // Null when the request is answered already, or cannot be.
  TRITONBACKEND_Response* NewResponse() noexcept;
  Status Fill(TRITONBACKEND_Response* response, std::span<const OutputSlice> outputs);
  void Send(TRITONBACKEND_Response* response, const Status& status) noexcept;

  TRITONBACKEND_Request* handle_;
  const Statistics* statistics_;
  bool answered_ = false;
  bool success_ = false;
};

}  // namespace aoti
