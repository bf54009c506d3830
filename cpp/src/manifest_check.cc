#include "manifest_check.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace aoti {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";

bool IsOneOf(char letter, std::string_view set) {
  return set.find(letter) != std::string_view::npos;
}

bool InName(char letter) {
  return IsOneOf(letter, kLetters) || IsOneOf(letter, kDigits);
}

bool IsIdentifier(std::string_view text) {
  return !text.empty() && IsOneOf(text[0], kLetters) &&
         std::all_of(text.begin(), text.end(), InName);
}

// "2.13"
bool IsRelease(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return false;
  for (const std::string_view part : {text.substr(0, dot), text.substr(dot + 1)}) {
    if (part.empty() || part.find_first_not_of(kDigits) != std::string_view::npos) return false;
  }
  return true;
}

// The names in a size such as "2*n". One before a parenthesis is a function's.
std::vector<std::string_view> SizeNames(std::string_view expression) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < expression.size();) {
    if (!IsOneOf(expression[i], kLetters)) {
      ++i;
      continue;
    }
    const size_t start = i;
    while (i < expression.size() && InName(expression[i])) ++i;
    if (i == expression.size() || expression[i] != '(') {
      names.push_back(expression.substr(start, i - start));
    }
  }
  return names;
}

// The names of `list`: each there, each once, none with a byte that would end it in C.
template <typename Item>
Status CheckNames(const std::vector<Item>& list, std::string Item::* name, const char* field) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& own = list[i].*name;
    bool fits = !own.empty() && own.find('\0') == std::string::npos;
    for (size_t other = 0; fits && other < i; ++other) fits = list[other].*name != own;
    if (!fits) {
      return InvalidArgument(std::string("manifest.") + field + ": the name '" + own.c_str() +
                             "' is empty, stands twice or holds a null byte");
    }
  }
  return {};
}

Status CheckTexts(const Manifest& manifest) {
  const std::array<std::pair<const char*, const std::string*>, 4> texts{{
      {"name", &manifest.name},
      {"package.model_name", &manifest.model_name},
      {"torch", &manifest.torch},
      {"target.arch", &manifest.target.arch},
  }};
  for (const auto& [field, text] : texts) {
    if (text->empty()) {
      return InvalidArgument(std::string("manifest.") + field + ": expected a name, got \"\"");
    }
  }
  if (!IsRelease(manifest.torch_min) || !IsRelease(manifest.torch_max)) {
    return InvalidArgument("manifest.torch_range: expected two releases such as \"2.12\", got \"" +
                           manifest.torch_min + "\" and \"" + manifest.torch_max + "\"");
  }
  constexpr std::array<std::string_view, 3> kExecutors{"plain", "state", "speculative"};
  if (std::find(kExecutors.begin(), kExecutors.end(), manifest.executor) == kExecutors.end()) {
    return InvalidArgument(
        "manifest.executor: expected \"plain\", \"state\" or \"speculative\", got \"" +
        manifest.executor + "\"");
  }
  return {};
}

// Every size is of this manifest's symbols, and what is joined along axis 0 has no other axis that
// counts the rows: such a tensor cannot be joined or cut.
Status CheckSizes(const Manifest& manifest, const std::vector<TensorSpec>& tensors,
                  const char* kind) {
  for (const TensorSpec& tensor : tensors) {
    const std::string where = std::string("manifest.") + kind + "." + tensor.name + ": ";
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      const Dim& dim = tensor.shape[axis];
      if (dim.kind == Dim::Kind::kFixed) continue;
      const auto names = SizeNames(dim.text);
      bool known = !names.empty();
      bool counts_rows = false;
      for (const std::string_view name : names) {
        const auto found =
            std::find_if(manifest.symbols.begin(), manifest.symbols.end(),
                         [name](const Symbol& symbol) { return symbol.name == name; });
        known &= found != manifest.symbols.end();
        counts_rows |= manifest.batch_symbol ==
                       static_cast<size_t>(std::distance(manifest.symbols.begin(), found));
      }
      if (!known) {
        return InvalidArgument(where + "\"" + dim.text +
                               "\" is not made of this manifest's symbols");
      }
      if (manifest.wire == Wire::kRows && axis > 0 && counts_rows) {
        return InvalidArgument(where + "expected axis 0 alone to count '" +
                               manifest.symbols[*manifest.batch_symbol].name +
                               "' for wire \"rows\", got " + tensor.ShapeText());
      }
    }
  }
  return {};
}

Status CheckBatching(const Manifest& manifest) {
  const std::string got = ", got " + std::to_string(manifest.batch_max);
  if (manifest.batch_max < 0) {
    return InvalidArgument("manifest.batching.max: expected 0 or more" + got);
  }
  if (manifest.batching_proved && (!manifest.batch_symbol || manifest.batch_max < 1)) {
    return InvalidArgument(
        std::string("manifest.batching: proved, and so it needs ") +
        (manifest.batch_symbol ? "a max: expected 1 or more" + got : "a symbol, got none"));
  }
  if (!manifest.batch_symbol) return {};
  const Symbol& symbol = manifest.symbols[*manifest.batch_symbol];
  if (manifest.batch_max > symbol.max) {
    return InvalidArgument("manifest.batching.max: expected at most the " +
                           std::to_string(symbol.max) + " of '" + symbol.name + "'" + got);
  }
  return {};
}

}  // namespace

bool StaysInside(const std::string& path) {
  const std::filesystem::path relative(path);
  bool any = false;
  for (const std::filesystem::path& part : relative) {
    if (part == "..") return false;
    any |= !part.empty() && part != ".";
  }
  return any && relative.is_relative() && path.find('\0') == std::string::npos;
}

Status CheckManifest(const Manifest& manifest) {
  AOTI_RETURN_IF_ERROR(CheckTexts(manifest));
  AOTI_RETURN_IF_ERROR(CheckNames(manifest.symbols, &Symbol::name, "symbols"));
  AOTI_RETURN_IF_ERROR(CheckNames(manifest.inputs, &TensorSpec::name, "inputs"));
  AOTI_RETURN_IF_ERROR(CheckNames(manifest.outputs, &TensorSpec::name, "outputs"));
  AOTI_RETURN_IF_ERROR(CheckNames(manifest.constants, &ConstantSpec::name, "constants"));
  AOTI_RETURN_IF_ERROR(CheckNames(manifest.files, &PackageFile::path, "files"));
  for (const Symbol& symbol : manifest.symbols) {
    if (!IsIdentifier(symbol.name)) {
      return InvalidArgument("manifest.symbols: '" + symbol.name + "' is no name of a symbol");
    }
  }
  AOTI_RETURN_IF_ERROR(CheckSizes(manifest, manifest.inputs, "inputs"));
  AOTI_RETURN_IF_ERROR(CheckSizes(manifest, manifest.outputs, "outputs"));
  return CheckBatching(manifest);
}

}  // namespace aoti
