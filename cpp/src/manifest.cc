#include "manifest.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>

#include "json.h"
#include "manifest_check.h"

namespace aoti {
namespace {

constexpr int kSchemaMajor = 2;

Status CheckSchema(const Fields& root) {
  AOTI_ASSIGN_OR_RETURN(const std::string version, root.String("schema"));
  constexpr std::string_view kDigits = "0123456789";
  const size_t dot = version.find('.');
  const std::string major = version.substr(0, dot);
  const std::string minor = dot == std::string::npos ? "" : version.substr(dot + 1);
  for (const std::string& part : {major, minor}) {
    if (part.empty() || part.find_first_not_of(kDigits) != std::string::npos) {
      return root.Wrong("schema", "a version such as \"2.0\"");
    }
  }
  if (major != std::to_string(kSchemaMajor)) {
    return Unsupported("manifest.schema: this backend reads version " +
                       std::to_string(kSchemaMajor) + ", the file has \"" + version + "\"");
  }
  return {};
}

Status ReadWire(const Fields& root, Manifest& manifest) {
  AOTI_ASSIGN_OR_RETURN(const std::string wire, root.String("wire"));
  if (wire == "ragged") {
    return Unsupported(
        "manifest.wire: this version of the backend serves \"rows\" and \"single\", not "
        "\"ragged\"");
  }
  if (wire != "rows" && wire != "single") {
    return root.Wrong("wire", "\"rows\" or \"single\"");
  }
  manifest.wire = wire == "rows" ? Wire::kRows : Wire::kSingle;
  return {};
}

Status ReadSymbols(const Fields& root, Manifest& manifest) {
  AOTI_ASSIGN_OR_RETURN(const Json* list, root.List("symbols"));
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields fields((*list)[i], root.Path("symbols") + "[" + std::to_string(i) + "]");
    Symbol symbol;
    AOTI_ASSIGN_OR_RETURN(symbol.name, fields.String("name"));
    AOTI_ASSIGN_OR_RETURN(symbol.min, fields.Int("min"));
    AOTI_ASSIGN_OR_RETURN(symbol.max, fields.Int("max"));
    if (symbol.min < 0 || symbol.max < symbol.min) {
      return InvalidArgument("manifest.symbols: '" + symbol.name + "' has the range " +
                             std::to_string(symbol.min) + ".." + std::to_string(symbol.max));
    }
    manifest.symbols.push_back(std::move(symbol));
  }
  return {};
}

std::optional<size_t> FindSymbol(const Manifest& manifest, std::string_view name) {
  for (size_t i = 0; i < manifest.symbols.size(); ++i) {
    if (manifest.symbols[i].name == name) return i;
  }
  return std::nullopt;
}

Result<Dim> ReadDim(const Json& value, const std::string& where, const Manifest& manifest,
                    bool expressions) {
  Dim dim;
  if (value.is_number_integer() && value >= 0 && value <= INT64_MAX) {
    dim.size = value.get<int64_t>();
    dim.text = std::to_string(dim.size);
    return dim;
  }
  if (value.is_string()) {
    dim.text = value.get<std::string>();
    if (const auto symbol = FindSymbol(manifest, dim.text)) {
      dim.kind = Dim::Kind::kSymbol;
      dim.symbol = *symbol;
      return dim;
    }
    if (expressions) {
      std::vector<std::string_view> names;
      for (const Symbol& symbol : manifest.symbols) names.push_back(symbol.name);
      auto parsed = SizeExpression::Parse(dim.text, names);
      if (!parsed.ok() && parsed.status().code() != StatusCode::kUnsupported) {
        return InvalidArgument(where + ": " + parsed.status().message());
      }
      dim.kind = Dim::Kind::kExpression;
      if (parsed.ok()) dim.expression = std::move(*parsed);
      return dim;
    }
  }
  return InvalidArgument(where + ": expected sizes of 0 or more and names of symbols, got " +
                         Show(value));
}

// The wire carries tensors row by row, and so the package must take them so.
Status CheckDimOrder(const Fields& fields, const std::string& where, size_t rank) {
  if (fields.Find("dim_order") == nullptr) return {};
  AOTI_ASSIGN_OR_RETURN(const Json* order, fields.List("dim_order"));
  Json row_major = Json::array();
  for (size_t axis = 0; axis < rank; ++axis) row_major.push_back(axis);
  if (*order == row_major) return {};
  return Unsupported(where + ".dim_order: requests carry tensors row-major, " + Show(row_major) +
                     ", and the package takes this one as " + Show(*order) +
                     ": compile it with a contiguous example");
}

// What fills an input where a request leaves it out.
Status ReadDefault(const Fields& fields, const std::string& where, bool is_output,
                   TensorSpec& tensor) {
  const Json* value = fields.Find("default");
  if (value == nullptr) return {};
  if (is_output) return InvalidArgument(where + ".default: expected none on an output");
  auto fill = ToElement(*value, *tensor.datatype);
  if (!fill.ok()) return InvalidArgument(where + ".default: " + fill.status().message());
  tensor.fill = *fill;
  return {};
}

Status ReadTensors(const Fields& root, const char* key, const Manifest& manifest,
                   std::vector<TensorSpec>& tensors) {
  const bool is_output = std::string_view(key) == "outputs";
  AOTI_ASSIGN_OR_RETURN(const Json* list, root.List(key));
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields fields((*list)[i], root.Path(key) + "[" + std::to_string(i) + "]");
    TensorSpec tensor;
    AOTI_ASSIGN_OR_RETURN(tensor.name, fields.String("name"));
    AOTI_ASSIGN_OR_RETURN(const std::string dtype, fields.String("dtype"));
    AOTI_ASSIGN_OR_RETURN(const std::string datatype, fields.String("datatype"));
    AOTI_ASSIGN_OR_RETURN(tensor.mutated, fields.BoolOr("mutated", false));
    AOTI_ASSIGN_OR_RETURN(const Json* shape, fields.List("shape"));
    const std::string where = root.Path(key) + "." + tensor.name;
    tensor.datatype = FindDatatype(dtype);
    if (tensor.datatype == nullptr) {
      return Unsupported(where + ": this backend knows no dtype \"" + dtype + "\"");
    }
    if (tensor.datatype->wire_name != datatype) {
      return InvalidArgument(where + ": dtype \"" + dtype + "\" goes as datatype \"" +
                             std::string(tensor.datatype->wire_name) + "\", got \"" + datatype +
                             "\"");
    }
    for (const Json& size : *shape) {
      AOTI_ASSIGN_OR_RETURN(Dim dim, ReadDim(size, where, manifest, is_output));
      tensor.shape.push_back(std::move(dim));
    }
    AOTI_RETURN_IF_ERROR(ReadDefault(fields, where, is_output, tensor));
    // An output is brought into the wire's order when it leaves the package.
    if (!is_output) AOTI_RETURN_IF_ERROR(CheckDimOrder(fields, where, tensor.shape.size()));
    tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<std::string> Digest(const Fields& fields) {
  AOTI_ASSIGN_OR_RETURN(std::string digest, fields.String("sha256"));
  constexpr size_t kHexDigits = 64;
  if (digest.size() != kHexDigits ||
      digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return fields.Wrong("sha256", "64 hex digits");
  }
  return digest;
}

Status ReadPackage(const Fields& root, Manifest& manifest) {
  AOTI_ASSIGN_OR_RETURN(const Fields package, root.Object("package"));
  AOTI_ASSIGN_OR_RETURN(manifest.package_path, package.String("path"));
  AOTI_ASSIGN_OR_RETURN(manifest.model_name, package.StringOr("model_name", "model"));
  AOTI_ASSIGN_OR_RETURN(manifest.package_sha256, Digest(package));
  if (!StaysInside(manifest.package_path)) {
    return package.Wrong("path", "a path below the manifest's folder");
  }
  AOTI_ASSIGN_OR_RETURN(manifest.files, ReadFiles(root));
  return {};
}

bool IsDevice(std::string_view device) {
  if (device == "cpu" || device == "cuda") return true;
  constexpr std::string_view kIndexed = "cuda:";
  if (!device.starts_with(kIndexed) || device.size() == kIndexed.size()) return false;
  device.remove_prefix(kIndexed.size());
  return device.size() <= 3 && device.find_first_not_of("0123456789") == std::string_view::npos;
}

Status ReadTarget(const Fields& root, Target& target) {
  AOTI_ASSIGN_OR_RETURN(const Fields fields, root.Object("target"));
  AOTI_ASSIGN_OR_RETURN(target.device, fields.String("device"));
  if (!IsDevice(target.device)) return fields.Wrong("device", "\"cpu\", \"cuda\" or \"cuda:N\"");
  AOTI_ASSIGN_OR_RETURN(target.arch, fields.String("arch"));
  AOTI_ASSIGN_OR_RETURN(target.march, fields.String("march"));
  AOTI_ASSIGN_OR_RETURN(target.glibc, fields.String("glibc"));
  AOTI_ASSIGN_OR_RETURN(const Json* features, fields.List("cpu_features"));
  for (const Json& feature : *features) {
    if (!feature.is_string()) return fields.Wrong("cpu_features", "a list of names");
    target.cpu_features.push_back(feature.get<std::string>());
  }
  return {};
}

Status ReadTorch(const Fields& root, Manifest& manifest) {
  AOTI_ASSIGN_OR_RETURN(manifest.torch, root.String("torch"));
  AOTI_ASSIGN_OR_RETURN(const Json* range, root.List("torch_range"));
  if (range->size() != 2 || !(*range)[0].is_string() || !(*range)[1].is_string()) {
    return root.Wrong("torch_range", "two releases");
  }
  manifest.torch_min = (*range)[0].get<std::string>();
  manifest.torch_max = (*range)[1].get<std::string>();
  return {};
}

// A list of names that may be left out.
Status ReadNames(const Fields& fields, const char* key, std::vector<std::string>& names) {
  if (fields.Find(key) == nullptr) return {};
  AOTI_ASSIGN_OR_RETURN(const Json* list, fields.List(key));
  for (const Json& name : *list) {
    if (!name.is_string()) return fields.Wrong(key, "a list of names");
    names.push_back(name.get<std::string>());
  }
  return {};
}

Status ReadConstants(const Fields& root, std::vector<ConstantSpec>& constants) {
  AOTI_ASSIGN_OR_RETURN(const Json* list, root.List("constants"));
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields fields((*list)[i], root.Path("constants") + "[" + std::to_string(i) + "]");
    ConstantSpec constant;
    AOTI_ASSIGN_OR_RETURN(constant.name, fields.String("name"));
    AOTI_ASSIGN_OR_RETURN(const std::string dtype, fields.String("dtype"));
    AOTI_ASSIGN_OR_RETURN(constant.updatable, fields.BoolOr("updatable", false));
    AOTI_ASSIGN_OR_RETURN(const Json* shape, fields.List("shape"));
    constant.datatype = FindDatatype(dtype);
    // A complex table of rotations is no business of ours; what a push must bring is.
    if (constant.datatype == nullptr && constant.updatable) {
      return fields.Wrong("dtype", "a dtype that an updatable constant can have");
    }
    for (const Json& size : *shape) {
      if (!size.is_number_integer() || size < 0 || size > INT64_MAX) {
        return fields.Wrong("shape", "sizes of 0 or more");
      }
      constant.shape.push_back(size.get<int64_t>());
    }
    AOTI_RETURN_IF_ERROR(ReadNames(fields, "aliases", constant.aliases));
    constants.push_back(std::move(constant));
  }
  return {};
}

Status ReadBatching(const Fields& root, Manifest& manifest) {
  AOTI_ASSIGN_OR_RETURN(const Fields batching, root.Object("batching"));
  AOTI_ASSIGN_OR_RETURN(manifest.batching_proved, batching.Bool("proved"));
  AOTI_ASSIGN_OR_RETURN(manifest.batch_max, batching.Int("max"));
  if (batching.Find("symbol") != nullptr) {
    AOTI_ASSIGN_OR_RETURN(const std::string name, batching.String("symbol"));
    manifest.batch_symbol = FindSymbol(manifest, name);
    if (!manifest.batch_symbol) return batching.Wrong("symbol", "the name of a symbol");
  }
  return {};
}

// What joining along axis 0 and cutting again needs.
Status CheckRows(const Manifest& manifest) {
  if (manifest.inputs.empty()) {
    return InvalidArgument("manifest.inputs: expected one or more for wire \"rows\", got none");
  }
  if (!manifest.batching_proved) {
    return InvalidArgument("manifest.wire: \"rows\" joins requests, and batching is not proved");
  }
  if (!manifest.batch_symbol) {
    return InvalidArgument("manifest.batching.symbol: expected a symbol for wire \"rows\"");
  }
  if (manifest.batch_max < 1) {
    return InvalidArgument("manifest.batching.max: expected 1 or more, got " +
                           std::to_string(manifest.batch_max));
  }
  for (const auto* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      if (tensor.shape.empty() || !tensor.shape[0].IsSymbol(*manifest.batch_symbol)) {
        return InvalidArgument(std::string("manifest.") +
                               (tensors == &manifest.inputs ? "inputs." : "outputs.") +
                               tensor.name + ": expected axis 0 to be '" +
                               manifest.symbols[*manifest.batch_symbol].name +
                               "' for wire \"rows\", got " + tensor.ShapeText());
      }
    }
  }
  return {};
}

// The inputs that a request must have tell every size: of those that it may leave out, and of the
// outputs.
Status CheckSizesAreTold(const Manifest& manifest) {
  std::vector<bool> told(manifest.symbols.size(), false);
  for (const TensorSpec& input : manifest.inputs) {
    for (const Dim& dim : input.shape) {
      if (!input.fill && dim.kind == Dim::Kind::kSymbol) told[dim.symbol] = true;
    }
  }
  for (const auto* tensors : {&manifest.inputs, &manifest.outputs}) {
    for (const TensorSpec& tensor : *tensors) {
      for (const Dim& dim : tensor.shape) {
        for (size_t symbol = 0; symbol < told.size(); ++symbol) {
          if (told[symbol] || !dim.DependsOn(symbol)) continue;
          return InvalidArgument(
              std::string("manifest.") + (tensors == &manifest.inputs ? "inputs." : "outputs.") +
              tensor.name + ": no input without a default tells '" + manifest.symbols[symbol].name +
              "' of its shape " + tensor.ShapeText() +
              ": require an input that has it, and compile the package again");
        }
      }
    }
  }
  return {};
}

Result<Manifest> Read(const Fields& root) {
  Manifest manifest;
  AOTI_RETURN_IF_ERROR(CheckSchema(root));
  AOTI_ASSIGN_OR_RETURN(manifest.name, root.String("name"));
  AOTI_ASSIGN_OR_RETURN(manifest.executor, root.String("executor"));
  AOTI_RETURN_IF_ERROR(ReadWire(root, manifest));
  AOTI_RETURN_IF_ERROR(ReadPackage(root, manifest));
  AOTI_RETURN_IF_ERROR(ReadTorch(root, manifest));
  AOTI_RETURN_IF_ERROR(ReadTarget(root, manifest.target));
  AOTI_RETURN_IF_ERROR(ReadSymbols(root, manifest));
  AOTI_RETURN_IF_ERROR(ReadTensors(root, "inputs", manifest, manifest.inputs));
  AOTI_RETURN_IF_ERROR(ReadTensors(root, "outputs", manifest, manifest.outputs));
  AOTI_ASSIGN_OR_RETURN(manifest.baked, ReadBaked(root));
  AOTI_RETURN_IF_ERROR(ReadConstants(root, manifest.constants));
  AOTI_RETURN_IF_ERROR(ReadNames(root, "unread", manifest.unread));
  AOTI_RETURN_IF_ERROR(ReadBatching(root, manifest));
  if (manifest.wire == Wire::kRows) AOTI_RETURN_IF_ERROR(CheckRows(manifest));
  AOTI_RETURN_IF_ERROR(CheckManifest(manifest));
  AOTI_RETURN_IF_ERROR(CheckSizesAreTold(manifest));
  return manifest;
}

}  // namespace

Result<std::vector<PackageFile>> ReadFiles(const Fields& root) {
  std::vector<PackageFile> read;
  AOTI_ASSIGN_OR_RETURN(const Json* files, root.List("files"));
  for (size_t i = 0; i < files->size(); ++i) {
    const Fields fields((*files)[i], root.Path("files") + "[" + std::to_string(i) + "]");
    PackageFile file;
    AOTI_ASSIGN_OR_RETURN(file.path, fields.String("path"));
    AOTI_ASSIGN_OR_RETURN(const int64_t bytes, fields.Int("bytes"));
    if (!StaysInside(file.path)) {
      return fields.Wrong("path", "a path below the manifest's folder");
    }
    if (bytes < 0) return fields.Wrong("bytes", "a size");
    AOTI_ASSIGN_OR_RETURN(file.sha256, Digest(fields));
    file.bytes = static_cast<uint64_t>(bytes);
    read.push_back(std::move(file));
  }
  return read;
}

bool Dim::DependsOn(size_t index) const {
  return IsSymbol(index) || (expression && expression->Uses(index));
}

std::string TensorSpec::ShapeText() const {
  std::string text = "[";
  for (const Dim& dim : shape) text += (text.size() > 1 ? ", " : "") + dim.text;
  return text + "]";
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

int64_t Manifest::RowLimit() const {
  if (wire != Wire::kRows) return 0;
  return std::min(symbols[*batch_symbol].max, batch_max);
}

std::vector<std::string> Manifest::UncheckedSizes() const {
  std::vector<std::string> found;
  for (const TensorSpec& output : outputs) {
    for (size_t axis = 0; axis < output.shape.size(); ++axis) {
      const Dim& dim = output.shape[axis];
      if (dim.kind != Dim::Kind::kExpression || dim.expression) continue;
      found.push_back("output '" + output.name + "': the size '" + dim.text + "' of axis " +
                      std::to_string(axis));
    }
  }
  return found;
}

bool Manifest::Updatable() const {
  return std::any_of(constants.begin(), constants.end(),
                     [](const ConstantSpec& constant) { return constant.updatable; });
}

Result<Manifest> ParseManifest(std::string_view text) {
  AOTI_ASSIGN_OR_RETURN(const Json document, ParseJson(text, "manifest"));
  if (!document.is_object()) {
    return InvalidArgument("manifest: expected an object, got " + Show(document));
  }
  return Read(Fields(document, "manifest"));
}

Result<Manifest> LoadManifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return Status(StatusCode::kNotFound, path.string() +
                                             " cannot be read: write the model with "
                                             "`aoti-pack`, which puts it there");
  }
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  Result<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) {
    return Status(manifest.status().code(), path.string() + ": " + manifest.status().message());
  }
  return manifest;
}

}  // namespace aoti
