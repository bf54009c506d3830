// Errors as values.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace aoti {

enum class StatusCode { kOk, kInvalidArgument, kInternal, kNotFound, kUnsupported, kCancelled };

// The outcome of an operation: success, or a code and a sentence for whoever has to mend it.
// Success holds no memory.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status Internal(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}
inline Status Unsupported(std::string message) {
  return {StatusCode::kUnsupported, std::move(message)};
}

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Require ok().
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define AOTI_JOIN_INNER(a, b) a##b
#define AOTI_JOIN(a, b) AOTI_JOIN_INNER(a, b)

// Return from the enclosing function with the Status of `expression` unless it is ok.
#define AOTI_RETURN_IF_ERROR(expression)                                \
  do {                                                                  \
    if (::aoti::Status aoti_status = (expression); !aoti_status.ok()) { \
      return aoti_status;                                               \
    }                                                                   \
  } while (false)

// Declare `target` with the value of the Result `expression`, or return its Status.
#define AOTI_ASSIGN_OR_RETURN(target, expression) \
  AOTI_ASSIGN_OR_RETURN_INNER(AOTI_JOIN(aoti_result_, __LINE__), target, expression)
#define AOTI_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return result.status();                     \
  target = std::move(*result)

}  // namespace aoti
