#include "size_expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>

namespace aoti {
namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  quoted += text;
  return quoted += '\'';
}

}  // namespace

// Recursive descent over the text; appends the steps in the order in which they are evaluated.
class SizeParser {
 public:
  SizeParser(std::string_view text, std::span<const std::string_view> symbols)
      : text_(text), rest_(text), symbols_(symbols) {}

  Result<SizeExpression> Parse() {
    AOTI_RETURN_IF_ERROR(Sum());
    SkipSpace();
    // "/" and whatever else Python may have between two terms.
    if (!rest_.empty()) return Unknown(Quoted(rest_.substr(0, 1)));
    return std::move(made_);
  }

 private:
  using Op = SizeExpression::Op;
  static constexpr int kDeepest = 64;

  Status Sum() {
    if (++depth_ > kDeepest) return Unknown("so many parentheses");
    AOTI_RETURN_IF_ERROR(Term());
    while (true) {
      if (Take("+")) {
        AOTI_RETURN_IF_ERROR(Term());
        Append(Op::kAdd);
      } else if (Take("-")) {
        AOTI_RETURN_IF_ERROR(Term());
        Append(Op::kSubtract);
      } else {
        --depth_;
        return {};
      }
    }
  }

  Status Term() {
    AOTI_RETURN_IF_ERROR(Factor());
    while (true) {
      if (Take("//")) {
        AOTI_RETURN_IF_ERROR(Factor());
        Append(Op::kDivide);
      } else if (Take("%")) {
        AOTI_RETURN_IF_ERROR(Factor());
        Append(Op::kModulo);
      } else if (Take("*")) {  // a power's "**" is taken before control comes here
        AOTI_RETURN_IF_ERROR(Factor());
        Append(Op::kMultiply);
      } else {
        return {};
      }
    }
  }

  Status Factor() {
    if (!Take("-")) return Power();
    if (++depth_ > kDeepest) return Unknown("so many signs");
    AOTI_RETURN_IF_ERROR(Factor());
    --depth_;
    Append(Op::kNegate);
    return {};
  }

  Status Power() {
    AOTI_RETURN_IF_ERROR(Atom());
    if (!Take("**")) return {};
    if (++depth_ > kDeepest) return Unknown("so many powers");
    AOTI_RETURN_IF_ERROR(Factor());
    --depth_;
    Append(Op::kPower);
    return {};
  }

  Status Atom() {
    if (Take("(")) {
      AOTI_RETURN_IF_ERROR(Sum());
      return Take(")") ? Status() : Wrong("expected ')'");
    }
    const auto in_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    const std::string_view word = rest_.substr(
        0,
        static_cast<size_t>(std::find_if_not(rest_.begin(), rest_.end(), in_name) - rest_.begin()));
    if (word.empty()) return Wrong("expected a number or a symbol");
    rest_.remove_prefix(word.size());
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      int64_t number = 0;
      const auto parsed = std::from_chars(word.data(), word.data() + word.size(), number);
      if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) {
        return Wrong(Quoted(word) + " is no number");
      }
      Append(Op::kNumber, number);
      return {};
    }
    if (Take("(")) return Call(word);
    const auto found = std::find(symbols_.begin(), symbols_.end(), word);
    if (found == symbols_.end()) return Wrong(Quoted(word) + " is no symbol");
    Append(Op::kSymbol, found - symbols_.begin());
    return {};
  }

  Status Call(std::string_view function) {
    constexpr std::pair<std::string_view, Op> kFunctions[] = {{"Max", Op::kMax},
                                                              {"Min", Op::kMin},
                                                              {"Mod", Op::kModulo},
                                                              {"PythonMod", Op::kModulo},
                                                              {"FloorDiv", Op::kDivide}};
    const auto* known = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                     [function](const auto& f) { return f.first == function; });
    if (known == std::end(kFunctions)) return Unknown(Quoted(function));
    size_t arguments = 0;
    do {
      AOTI_RETURN_IF_ERROR(Sum());
      if (++arguments > 1) Append(known->second);
    } while (Take(","));
    const bool any_number = known->second == Op::kMax || known->second == Op::kMin;
    if (!Take(")")) return Wrong("expected ')'");
    if (!any_number && arguments != 2) {
      return Wrong(Quoted(function) + " takes two arguments");
    }
    return {};
  }

  void SkipSpace() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    SkipSpace();
    return true;
  }

  void Append(Op op, int64_t operand = 0) { made_.steps_.push_back({op, operand}); }

  Status Wrong(const std::string& what) const {
    return InvalidArgument("the size " + Quoted(text_) + ": " + what);
  }
  Status Unknown(const std::string& what) const {
    return Unsupported("the size " + Quoted(text_) + ": " + what + " is not known here");
  }

  const std::string_view text_;
  std::string_view rest_;
  const std::span<const std::string_view> symbols_;
  SizeExpression made_;
  int depth_ = 0;
};

Result<SizeExpression> SizeExpression::Parse(std::string_view text,
                                             std::span<const std::string_view> symbols) {
  return SizeParser(text, symbols).Parse();
}

std::optional<int64_t> SizeExpression::Evaluate(std::span<const int64_t> sizes) const {
  std::vector<int64_t> stack;
  for (const Step& step : steps_) {
    if (step.op == Op::kNumber || step.op == Op::kSymbol) {
      stack.push_back(step.op == Op::kNumber ? step.operand
                                             : sizes[static_cast<size_t>(step.operand)]);
      continue;
    }
    int64_t left = 0;
    const int64_t right = stack.back();
    if (step.op != Op::kNegate) {
      stack.pop_back();
      left = stack.back();
    }
    const auto value = Apply(step.op, left, right);
    if (!value) return std::nullopt;
    stack.back() = *value;
  }
  return stack.back();
}

bool SizeExpression::Uses(size_t symbol) const {
  return std::any_of(steps_.begin(), steps_.end(), [symbol](const Step& step) {
    return step.op == Op::kSymbol && static_cast<size_t>(step.operand) == symbol;
  });
}

std::optional<int64_t> SizeExpression::Apply(Op op, int64_t a, int64_t b) {
  int64_t value = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &value)) return std::nullopt;
      return value;
    case Op::kNegate:  // 0 - b
    case Op::kSubtract:
      if (__builtin_sub_overflow(a, b, &value)) return std::nullopt;
      return value;
    case Op::kMultiply:
      if (__builtin_mul_overflow(a, b, &value)) return std::nullopt;
      return value;
    case Op::kDivide:
    case Op::kModulo: {
      if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
      const bool down = a % b != 0 && (a < 0) != (b < 0);  // Python rounds towards minus infinity
      return op == Op::kDivide ? a / b - (down ? 1 : 0) : a % b + (down ? b : 0);
    }
    case Op::kPower:
      if (b < 0) return std::nullopt;
      value = 1;
      // 0, 1 and -1 to any power are done at once; of all others the 64th is too large.
      for (int64_t i = 0; i < (a >= -1 && a <= 1 ? std::min<int64_t>(b, 2 + b % 2) : b); ++i) {
        if (__builtin_mul_overflow(value, a, &value)) return std::nullopt;
      }
      return value;
    case Op::kMax:
      return std::max(a, b);
    case Op::kMin:
      return std::min(a, b);
    default:
      return std::nullopt;
  }
}

}  // namespace aoti
