// Reading JSON objects with errors that name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "status.h"

namespace aoti {

using Json = nlohmann::json;

// Parses `text`; INVALID_ARG "`where`: not JSON: …" otherwise. What is nested too deep to be walked
// by a recursion is refused too.
Result<Json> ParseJson(std::string_view text, const std::string& where);

// One line of at most 80 characters that shows `value` in a message.
std::string Show(const Json& value);

// An object of a document, and where it stands there.
class Fields {
 public:
  // `value` must outlive this. A value that is no object has no fields, and every access says so.
  Fields(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  std::string Path(std::string_view key) const;

  Result<std::string> String(std::string_view key) const;
  // `otherwise` when there is no such field; null is no string.
  Result<std::string> StringOr(std::string_view key, const char* otherwise) const;
  Result<bool> Bool(std::string_view key) const;
  // `otherwise` when there is no such field; null is no bool.
  Result<bool> BoolOr(std::string_view key, bool otherwise) const;
  Result<int64_t> Int(std::string_view key) const;
  Result<const Json*> List(std::string_view key) const;
  Result<Fields> Object(std::string_view key) const;
  // The value, or null when it is missing or JSON's null.
  const Json* Find(std::string_view key) const;

  // "manifest.wire: expected one of …, got …"
  Status Wrong(std::string_view key, const std::string& expected) const;

 private:
  const Json* value_;
  std::string where_;
};

}  // namespace aoti
