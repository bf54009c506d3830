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

class Fields;

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
  std::string sha256;  // 64 hex digits
};

// What the package needs of the machine. See `Target` in aoti_pack/manifest.py.
struct Target {
  std::string device;  // "cpu", "cuda" or "cuda:N"
  std::string arch;    // "x86_64"
  std::string march;   // "x86-64-v3"; "sm_90" on a GPU
  std::vector<std::string> cpu_features;
  std::string glibc;  // "2.34"
};

// A weight or buffer inside the package.
struct ConstantSpec {
  std::string name;
  const Datatype* datatype = nullptr;  // null for a dtype that we do not know; never when updatable
  std::vector<int64_t> shape;
  bool updatable = false;
};

struct Manifest {
  std::string name;
  std::string executor;
  Wire wire = Wire::kSingle;
  std::string package_path;    // relative to the manifest
  std::string package_sha256;  // of the .pt2 that the package came in
  std::string model_name;
  std::vector<PackageFile> files;
  std::string torch;      // that compiled it: "2.13.0+cpu"
  std::string torch_min;  // the oldest that may run it: "2.12"
  std::string torch_max;  // the newest: "2.14"
  Target target;
  std::vector<Symbol> symbols;
  std::vector<TensorSpec> inputs;   // in the package's order
  std::vector<TensorSpec> outputs;  // in the package's order
  std::vector<ConstantSpec> constants;
  bool batching_proved = false;
  std::optional<size_t> batch_symbol;  // index into symbols; always there for Wire::kRows
  int64_t batch_max = 0;

  // Most rows that one run may have; 0 for Wire::kSingle.
  int64_t RowLimit() const;
};

// Reads the text of a manifest. The error names the field, what was expected and what came.
Result<Manifest> ParseManifest(std::string_view text);

// Reads `folder`/manifest.json. Whether the files that it lists are what it says is for verify.h.
Result<Manifest> LoadManifest(const std::filesystem::path& folder);

// The list "files" of a document.
Result<std::vector<PackageFile>> ReadFiles(const Fields& root);

// "[3, 16]"
std::string ShapeText(std::span<const int64_t> shape);

}  // namespace aoti
