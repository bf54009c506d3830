// config.pbtxt, as the server hands it over, and whether it fits the manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manifest.h"
#include "status.h"

namespace aoti {

struct ConfigTensor {
  std::string name;
  std::string data_type;  // "TYPE_FP32"
  std::vector<int64_t> dims;
  std::optional<std::vector<int64_t>> reshape;
  bool optional = false;
};

struct ModelConfig {
  int64_t max_batch_size = 0;
  std::vector<ConfigTensor> inputs;
  std::vector<ConfigTensor> outputs;
  size_t instances = 1;  // over all instance groups
  std::string threads;   // parameter "threads", empty when not given
};

// How a tensor stands in config.pbtxt. The server's core counts the rows by itself and refuses
// empty `dims`: what has no other axis goes as [1], made empty again by a reshape where rows are
// joined.
struct WireShape {
  std::vector<int64_t> dims;  // -1 for a size that varies
  bool empty_reshape = false;
};
WireShape WireShapeOf(const TensorSpec& spec, const Manifest& manifest);

// Reads the JSON form of config.pbtxt.
Result<ModelConfig> ParseModelConfig(std::string_view text);

// INVALID_ARG that names the field, what the manifest expects and what the configuration says.
Status CheckConfig(const ModelConfig& config, const Manifest& manifest);

}  // namespace aoti
