// Arguments whose value was compiled in.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "json.h"
#include "status.h"
#include "triton_abi.h"

namespace aoti {

// An argument of the model that is no tensor. A request may say its value, and only that one.
struct BakedScalar {
  std::string name;
  std::variant<std::monostate, bool, int64_t, double, std::string>
      value;         // monostate: Python's None
  std::string text;  // as the manifest writes the value
};

// The manifest's list `baked`.
Result<std::vector<BakedScalar>> ReadBaked(const Fields& root);

// Whether a request parameter says the value that was compiled in. 3 and 3.0 are the same number;
// true and 1, or 3 and "3", are not the same value. Allocates nothing.
bool SaysTheSame(const BakedScalar& baked, TRITONSERVER_ParameterType type, const void* value);

// A request parameter's value for a message, as JSON writes it.
std::string ParameterText(TRITONSERVER_ParameterType type, const void* value);

}  // namespace aoti
