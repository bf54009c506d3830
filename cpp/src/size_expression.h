// Sizes that are computed from symbols, as the exporter writes them: "2*n", "((n + 1)//2)",
// "Max(m, n) + 3".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "status.h"

namespace aoti {

// Whole numbers and symbols under + - * // % **, parentheses, Max, Min, Mod and FloorDiv, with
// Python's precedence and Python's rounding.
class SizeExpression {
 public:
  // `symbols` are the names that may stand in `text`. UNSUPPORTED for a function or an operator
  // that is none of those above; INVALID_ARG for what is no expression or names no symbol.
  static Result<SizeExpression> Parse(std::string_view text,
                                      std::span<const std::string_view> symbols);

  // The value where `sizes` holds the size of each symbol; none where that is no whole number of
  // 64 bits, such as after a division by zero.
  std::optional<int64_t> Evaluate(std::span<const int64_t> sizes) const;

  // Whether the value depends on the symbol of that index.
  bool Uses(size_t symbol) const;

 private:
  friend class SizeParser;
  enum class Op {
    kNumber,
    kSymbol,
    kNegate,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kModulo,
    kPower,
    kMax,
    kMin
  };
  struct Step {
    Op op;
    int64_t operand = 0;  // kNumber: the value; kSymbol: its index
  };

  static std::optional<int64_t> Apply(Op op, int64_t a, int64_t b);

  std::vector<Step> steps_;  // reverse Polish
};

}  // namespace aoti
