#include "json.h"

namespace aoti {

namespace {

constexpr int kDeepest = 200;

struct TooDeep {};

}  // namespace

Result<Json> ParseJson(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text, [](int depth, Json::parse_event_t, const Json&) {
      if (depth > kDeepest) throw TooDeep();
      return true;
    });
  } catch (const TooDeep&) {
    return InvalidArgument(where + ": nested more than " + std::to_string(kDeepest) + " deep");
  } catch (const Json::exception& error) {
    return InvalidArgument(where + ": not JSON: " + error.what());
  }
}

std::string Show(const Json& value) {
  constexpr size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

std::string Fields::Path(std::string_view key) const {
  return where_ + "." + std::string(key);
}

const Json* Fields::Find(std::string_view key) const {
  if (!value_->is_object()) return nullptr;
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

Status Fields::Wrong(std::string_view key, const std::string& expected) const {
  const Json* value = Find(key);
  return InvalidArgument(Path(key) + ": expected " + expected + ", got " +
                         (value == nullptr ? "nothing" : Show(*value)));
}

Result<std::string> Fields::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_string()) return Wrong(key, "a string");
  return value->get<std::string>();
}

Result<std::string> Fields::StringOr(std::string_view key, const char* otherwise) const {
  if (value_->is_object() && !value_->contains(key)) return std::string(otherwise);
  return String(key);
}

Result<bool> Fields::Bool(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

Result<bool> Fields::BoolOr(std::string_view key, bool otherwise) const {
  if (value_->is_object() && !value_->contains(key)) return otherwise;
  return Bool(key);
}

Result<int64_t> Fields::Int(std::string_view key) const {
  const Json* value = Find(key);
  const bool fits = value != nullptr && value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  if (!fits) return Wrong(key, "a whole number");
  return value->get<int64_t>();
}

Result<const Json*> Fields::List(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) return Wrong(key, "a list");
  return value;
}

Result<Fields> Fields::Object(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_object()) return Wrong(key, "an object");
  return Fields(*value, Path(key));
}

}  // namespace aoti
