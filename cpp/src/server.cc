#include "server.h"

namespace aoti {
namespace {

TRITONSERVER_Error_Code ToServerCode(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return TRITONSERVER_ERROR_INVALID_ARG;
    case StatusCode::kNotFound:
      return TRITONSERVER_ERROR_NOT_FOUND;
    case StatusCode::kUnsupported:
      return TRITONSERVER_ERROR_UNSUPPORTED;
    case StatusCode::kCancelled:
      return TRITONSERVER_ERROR_CANCELLED;
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return TRITONSERVER_ERROR_INTERNAL;
}

StatusCode FromServerCode(TRITONSERVER_Error_Code code) {
  switch (code) {
    case TRITONSERVER_ERROR_INVALID_ARG:
      return StatusCode::kInvalidArgument;
    case TRITONSERVER_ERROR_NOT_FOUND:
      return StatusCode::kNotFound;
    case TRITONSERVER_ERROR_UNSUPPORTED:
      return StatusCode::kUnsupported;
    case TRITONSERVER_ERROR_CANCELLED:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

TRITONSERVER_Error* ToServerError(const Status& status) noexcept {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(ToServerCode(status.code()), status.message().c_str());
}

Status FromServerError(TRITONSERVER_Error* error) {
  if (error == nullptr) return {};
  Status status(FromServerCode(TRITONSERVER_ErrorCode(error)), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

void Log(TRITONSERVER_LogLevel level, const char* text) noexcept {
  // A log that cannot be written leaves nobody to tell.
  if (auto* error = TRITONSERVER_LogMessage(level, "aoti", 0, text)) {
    TRITONSERVER_ErrorDelete(error);
  }
}

void Log(TRITONSERVER_LogLevel level, const std::string& text) noexcept {
  Log(level, text.c_str());
}

void LogError(TRITONSERVER_Error* error) noexcept {
  if (error == nullptr) return;
  Log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

Status CurrentException() noexcept {
  try {
    throw;
  } catch (const std::exception& error) {
    // Torch adds a trace of the server's own stack and paths, which is no business of a client's.
    const std::string_view what(error.what());
    return Internal(std::string(what.substr(0, what.find("\nException raised from"))));
  } catch (...) {
    return Internal("an exception of an unknown kind");
  }
}

}  // namespace aoti
