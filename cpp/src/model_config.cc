#include "model_config.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "json.h"

namespace aoti {
namespace {

// Protobuf's JSON writes 64-bit numbers as strings, and leaves out what has its default.
std::optional<int64_t> AsInt(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<int64_t> IntOr(const Fields& fields, std::string_view key, int64_t otherwise) {
  const Json* value = fields.Find(key);
  if (value == nullptr) return otherwise;
  const auto number = AsInt(*value);
  if (!number) return fields.Wrong(key, "a whole number");
  return *number;
}

Result<std::vector<int64_t>> Ints(const Fields& fields, std::string_view key) {
  std::vector<int64_t> numbers;
  const Json* list = fields.Find(key);
  if (list == nullptr) return numbers;
  if (!list->is_array()) return fields.Wrong(key, "a list");
  for (const Json& value : *list) {
    const auto number = AsInt(value);
    if (!number) return fields.Wrong(key, "a list of whole numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<ConfigTensor>> Tensors(const Fields& root, const char* key) {
  std::vector<ConfigTensor> tensors;
  const Json* list = root.Find(key);
  if (list == nullptr) return tensors;
  if (!list->is_array()) return root.Wrong(key, "a list");
  for (const Json& item : *list) {
    const Fields fields(item, root.Path(key));
    ConfigTensor tensor;
    AOTI_ASSIGN_OR_RETURN(tensor.name, fields.String("name"));
    AOTI_ASSIGN_OR_RETURN(tensor.data_type, fields.String("data_type"));
    AOTI_ASSIGN_OR_RETURN(tensor.dims, Ints(fields, "dims"));
    if (fields.Find("reshape") != nullptr) {
      AOTI_ASSIGN_OR_RETURN(const Fields reshape, fields.Object("reshape"));
      AOTI_ASSIGN_OR_RETURN(tensor.reshape, Ints(reshape, "shape"));
    }
    if (fields.Find("optional") != nullptr) {
      AOTI_ASSIGN_OR_RETURN(tensor.optional, fields.Bool("optional"));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<size_t> Instances(const Fields& root) {
  const Json* groups = root.Find("instance_group");
  if (groups == nullptr) return size_t{1};
  if (!groups->is_array()) return root.Wrong("instance_group", "a list");
  int64_t total = 0;
  for (const Json& group : *groups) {
    if (!group.is_object()) return root.Wrong("instance_group", "a list of groups");
    const Fields fields(group, root.Path("instance_group"));
    AOTI_ASSIGN_OR_RETURN(const int64_t count, IntOr(fields, "count", 1));
    if (count > INT32_MAX) return fields.Wrong("count", "a count of instances");
    // On GPUs the count is that of each of them.
    AOTI_ASSIGN_OR_RETURN(const std::vector<int64_t> gpus, Ints(fields, "gpus"));
    total += std::max<int64_t>(count, 0) * std::max<int64_t>(static_cast<int64_t>(gpus.size()), 1);
  }
  return static_cast<size_t>(std::max<int64_t>(total, 1));
}

Status Contradiction(const std::string& field, const std::string& expected,
                     const std::string& got) {
  return InvalidArgument("config.pbtxt: " + field + ": the manifest expects " + expected +
                         ", got " + got + ": write the model again, or correct the field");
}

// Whether the configured size `dim` says the same as the manifest's, or narrows it.
bool SizeFits(int64_t dim, const Dim& expected, const Manifest& manifest) {
  switch (expected.kind) {
    case Dim::Kind::kFixed:
      return dim == expected.size;
    case Dim::Kind::kSymbol: {
      const Symbol& symbol = manifest.symbols[expected.symbol];
      return dim == -1 || (dim >= symbol.min && dim <= symbol.max);
    }
    case Dim::Kind::kExpression:
      break;
  }
  return true;
}

// The model's axes that `dims` describe: all but the rows that the core counts by itself.
std::span<const Dim> WireAxes(const TensorSpec& spec, const Manifest& manifest) {
  return std::span(spec.shape).subspan(manifest.wire == Wire::kRows ? 1 : 0);
}

Status CheckTensor(const ConfigTensor& tensor, const TensorSpec& spec, const std::string& field,
                   const Manifest& manifest) {
  const std::string data_type = "TYPE_" + std::string(spec.datatype->wire_name);
  if (tensor.data_type != data_type) {
    return Contradiction(field + ".data_type", data_type, tensor.data_type);
  }
  const WireShape wire = WireShapeOf(spec, manifest);
  const std::span<const Dim> model = WireAxes(spec, manifest);
  bool fits = tensor.dims.size() == wire.dims.size();
  if (fits && model.empty()) fits = tensor.dims == wire.dims;
  for (size_t i = 0; fits && i < model.size(); ++i) {
    fits = SizeFits(tensor.dims[i], model[i], manifest);
  }
  if (!fits) {
    return Contradiction(field + ".dims", ShapeText(wire.dims), ShapeText(tensor.dims));
  }
  // Only a tensor of nothing but rows goes in another form than the model has it.
  const bool reshape_fits = wire.empty_reshape ? tensor.reshape && tensor.reshape->empty()
                                               : !tensor.reshape || *tensor.reshape == tensor.dims;
  if (!reshape_fits) {
    return Contradiction(field + ".reshape", wire.empty_reshape ? "an empty shape" : "none",
                         tensor.reshape ? ShapeText(*tensor.reshape) : "none");
  }
  if (tensor.optional && !spec.fill) {
    return Contradiction(field + ".optional", "false (it has no default for the input)", "true");
  }
  return {};
}

Status CheckTensors(const std::vector<ConfigTensor>& tensors, const std::vector<TensorSpec>& specs,
                    const std::string& kind, const Manifest& manifest) {
  for (const TensorSpec& spec : specs) {
    const std::string field = kind + " '" + spec.name + "'";
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&spec](const ConfigTensor& t) { return t.name == spec.name; });
    if (found == tensors.end()) {
      return Contradiction(field, std::string(spec.datatype->wire_name) + " " + spec.ShapeText(),
                           "no " + kind + " of that name");
    }
    AOTI_RETURN_IF_ERROR(CheckTensor(*found, spec, field, manifest));
  }
  for (const ConfigTensor& tensor : tensors) {
    if (std::none_of(specs.begin(), specs.end(),
                     [&tensor](const TensorSpec& s) { return s.name == tensor.name; })) {
      return Contradiction(kind + " '" + tensor.name + "'", "no such " + kind, tensor.data_type);
    }
    if (std::count_if(tensors.begin(), tensors.end(), [&tensor](const ConfigTensor& other) {
          return other.name == tensor.name;
        }) > 1) {
      return Contradiction(kind + " '" + tensor.name + "'", "it once", "it several times");
    }
  }
  return {};
}

}  // namespace

WireShape WireShapeOf(const TensorSpec& spec, const Manifest& manifest) {
  WireShape wire;
  for (const Dim& dim : WireAxes(spec, manifest)) {
    wire.dims.push_back(dim.kind == Dim::Kind::kFixed ? dim.size : -1);
  }
  if (wire.dims.empty()) {
    wire.dims = {1};
    wire.empty_reshape = manifest.wire == Wire::kRows;
  }
  return wire;
}

Result<ModelConfig> ParseModelConfig(std::string_view text) {
  AOTI_ASSIGN_OR_RETURN(const Json document, ParseJson(text, "config"));
  if (!document.is_object()) {
    return InvalidArgument("config: expected an object, got " + Show(document));
  }
  const Fields root(document, "config");
  ModelConfig config;
  AOTI_ASSIGN_OR_RETURN(config.max_batch_size, IntOr(root, "max_batch_size", 0));
  AOTI_ASSIGN_OR_RETURN(config.inputs, Tensors(root, "input"));
  AOTI_ASSIGN_OR_RETURN(config.outputs, Tensors(root, "output"));
  AOTI_ASSIGN_OR_RETURN(config.instances, Instances(root));
  if (root.Find("parameters") != nullptr) {
    AOTI_ASSIGN_OR_RETURN(const Fields parameters, root.Object("parameters"));
    if (parameters.Find("threads") != nullptr) {
      AOTI_ASSIGN_OR_RETURN(const Fields threads, parameters.Object("threads"));
      AOTI_ASSIGN_OR_RETURN(config.threads, threads.String("string_value"));
      if (config.threads.empty()) return threads.Wrong("string_value", "a whole number");
    }
  }
  return config;
}

Status CheckConfig(const ModelConfig& config, const Manifest& manifest) {
  const std::string got = std::to_string(config.max_batch_size);
  if (manifest.wire == Wire::kRows) {
    if (config.max_batch_size < 1 || config.max_batch_size > manifest.batch_max) {
      return Contradiction("max_batch_size", "1.." + std::to_string(manifest.batch_max), got);
    }
  } else if (config.max_batch_size != 0) {
    return Contradiction("max_batch_size", "0 (wire \"single\": requests are not joined)", got);
  }
  AOTI_RETURN_IF_ERROR(CheckTensors(config.inputs, manifest.inputs, "input", manifest));
  return CheckTensors(config.outputs, manifest.outputs, "output", manifest);
}

}  // namespace aoti
