// The contract of a package, as `aoti_pack/manifest.py` writes it to manifest.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datatypes.h"
#include "status.h"

namespace aoti {

// How requests reach the model: joined along axis 0, or one request a run.
enum class Wire { kRows, kSingle };

struct Symbol {
  std::string name;
  int64_t min = 0;
  int64_t max = 0;
};

// One dimension of a tensor: a number, a symbol, or an expression of symbols that is not checked.
struct Dim {
  enum class Kind { kFixed, kSymbol, kExpression };
  Kind kind = Kind::kFixed;
  int64_t size = 0;   // kFixed
  size_t symbol = 0;  // kSymbol: index into Manifest::symbols
  std::string text;   // as the manifest writes it

  bool IsSymbol(size_t index) const { return kind == Kind::kSymbol && symbol == index; }
};

struct TensorSpec {
  std::string name;
  const Datatype* datatype = nullptr;  // never null in a Manifest
  std::vector<Dim> shape;
  bool mutated = false;

  // "[b, 16]"
  std::string ShapeText() const;
};

struct PackageFile {
  std::string path;  // relative to the manifest
  uint64_t bytes = 0;
};

struct Manifest {
  std::string name;
  std::string executor;
  Wire wire = Wire::kSingle;
  std::string package_path;  // relative to the manifest
  std::string model_name;
  std::vector<PackageFile> files;
  std::string torch;
  std::string device;  // "cpu", "cuda" or "cuda:N"
  std::vector<std::string> cpu_features;
  std::vector<Symbol> symbols;
  std::vector<TensorSpec> inputs;   // in the package's order
  std::vector<TensorSpec> outputs;  // in the package's order
  bool batching_proved = false;
  std::optional<size_t> batch_symbol;  // index into symbols; always there for Wire::kRows
  int64_t batch_max = 0;

  // Most rows that one run may have; 0 for Wire::kSingle.
  int64_t RowLimit() const;
};

// Reads the text of a manifest. The error names the field, what was expected and what came.
Result<Manifest> ParseManifest(std::string_view text);

// Reads `folder`/manifest.json and looks that the files it lists are there in full length.
Result<Manifest> LoadManifest(const std::filesystem::path& folder);

// "[3, 16]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace aoti
