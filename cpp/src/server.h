// The server's errors and log, in our terms: the only place that converts between them.
#pragma once

#include <exception>
#include <string>

#include "status.h"
#include "triton_abi.h"

namespace aoti {

// An error for the server, null when `status` is ok. The receiver owns it.
TRITONSERVER_Error* ToServerError(const Status& status) noexcept;

// Takes an error of the server's (null: success) and frees it.
Status FromServerError(TRITONSERVER_Error* error);

void Log(TRITONSERVER_LogLevel level, const char* text) noexcept;
void Log(TRITONSERVER_LogLevel level, const std::string& text) noexcept;

// Logs and frees an error of the server's that nobody can be told (null: nothing to log).
void LogError(TRITONSERVER_Error* error) noexcept;

// The exception that is being handled, as INTERNAL. Call inside a catch block.
Status CurrentException() noexcept;

// Runs `body` (which returns a Status) for a C entry point: nothing that it throws gets out.
template <typename Body>
TRITONSERVER_Error* AtBoundary(Body&& body) noexcept {
  try {
    return ToServerError(body());
  } catch (...) {
    return ToServerError(CurrentException());
  }
}

}  // namespace aoti
