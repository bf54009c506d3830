#include "request.h"

#include <algorithm>
#include <utility>

#include "memory.h"
#include "server.h"

namespace aoti {

Request::Request(Request&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      statistics_(other.statistics_),
      answered_(other.answered_),
      success_(other.success_) {}

Request::~Request() {
  if (handle_ == nullptr) return;
  if (!answered_) Fail(Internal("the request was dropped without an answer"));
  Close(Timeline::Now());
}

TRITONBACKEND_Response* Request::NewResponse() noexcept {
  if (answered_) return nullptr;
  TRITONBACKEND_Response* response = nullptr;
  TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, handle_);
  if (error == nullptr) return response;
  // Without a response there is no way left to tell the client.
  answered_ = true;
  LogError(error);
  return nullptr;
}

void Request::Fail(const Status& status) noexcept {
  if (TRITONBACKEND_Response* response = NewResponse()) Send(response, status);
}

void Request::Answer(std::span<const OutputSlice> outputs) noexcept {
  TRITONBACKEND_Response* response = NewResponse();
  if (response == nullptr) return;
  try {
    Send(response, Fill(response, outputs));
  } catch (...) {
    Send(response, CurrentException());
  }
}

Status Request::Fill(TRITONBACKEND_Response* response, std::span<const OutputSlice> outputs) {
  uint32_t count = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestOutputCount(handle_, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_RequestOutputName(handle_, i, &name)));
    const auto slice = std::find_if(outputs.begin(), outputs.end(),
                                    [name](const OutputSlice& o) { return *o.name == name; });
    if (slice == outputs.end()) {
      return InvalidArgument("the model has no output '" + std::string(name) + "'");
    }
    TRITONBACKEND_Output* output = nullptr;
    AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ResponseOutput(
        response, &output, name, slice->datatype->server, slice->shape.data(),
        static_cast<uint32_t>(slice->shape.size()))));
    void* buffer = nullptr;
    TRITONSERVER_MemoryType type =
        slice->place.on_host() ? TRITONSERVER_MEMORY_CPU : TRITONSERVER_MEMORY_GPU;
    int64_t id = slice->place.on_host() ? 0 : slice->place.gpu;
    AOTI_RETURN_IF_ERROR(
        FromServerError(TRITONBACKEND_OutputBuffer(output, &buffer, slice->bytes, &type, &id)));
    const Place place = type == TRITONSERVER_MEMORY_GPU ? Place{id} : Place{};
    CopyBytes(buffer, place, slice->data, slice->place, slice->bytes);
  }
  return {};
}

void Request::Send(TRITONBACKEND_Response* response, const Status& status) noexcept {
  answered_ = true;
  success_ = status.ok();
  TRITONSERVER_Error* told = ToServerError(status);
  LogError(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, told));
  if (told != nullptr) TRITONSERVER_ErrorDelete(told);
}

void Request::Close(const Timeline& times) noexcept {
  if (handle_ == nullptr) return;
  statistics_->ReportRequest(handle_, success_, times);
  LogError(TRITONBACKEND_RequestRelease(handle_, TRITONSERVER_REQUEST_RELEASE_ALL));
  handle_ = nullptr;
}

}  // namespace aoti
