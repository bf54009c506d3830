#include "complete_config.h"

#include <algorithm>
#include <vector>

#include "json.h"
#include "model_config.h"

namespace aoti {
namespace {

// The entry of a tensor as aoti_pack/repository/config.py writes it.
Json Entry(const TensorSpec& spec, const Manifest& manifest) {
  const WireShape wire = WireShapeOf(spec, manifest);
  Json entry = {{"name", spec.name},
                {"data_type", "TYPE_" + std::string(spec.datatype->wire_name)},
                {"dims", wire.dims}};
  if (wire.empty_reshape) entry["reshape"] = {{"shape", Json::array()}};
  if (spec.fill) entry["optional"] = true;
  return entry;
}

// Whether protobuf's JSON leaves `key` of `object` at its default.
bool LeftOut(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() || *found == Json::array() ||
         *found == "TYPE_INVALID";
}

void CompleteTensors(Json& config, const char* key, const std::vector<TensorSpec>& specs,
                     const Manifest& manifest) {
  Json given = LeftOut(config, key) ? Json::array() : config[key];
  if (!given.is_array()) return;
  Json completed = Json::array();
  for (const TensorSpec& spec : specs) {
    Json entry = Entry(spec, manifest);
    const auto found = std::find_if(given.begin(), given.end(), [&spec](const Json& item) {
      return item.is_object() && item.value("name", Json()) == spec.name;
    });
    if (found != given.end()) {
      // The form on the wire is one statement: dims that are given come with their own reshape.
      const bool own_dims = !LeftOut(*found, "dims");
      for (const auto& [field, value] : entry.items()) {
        const bool about_shape = field == "dims" || field == "reshape";
        if (field == "optional" || (about_shape && own_dims)) continue;
        if (LeftOut(*found, field.c_str())) (*found)[field] = value;
      }
      entry = std::move(*found);
      given.erase(found);
    }
    completed.push_back(std::move(entry));
  }
  for (Json& unknown : given) completed.push_back(std::move(unknown));
  config[key] = std::move(completed);
}

}  // namespace

Result<std::string> CompleteConfig(std::string_view config, const Manifest& manifest) {
  AOTI_ASSIGN_OR_RETURN(const Json given, ParseJson(config, "config"));
  if (!given.is_object()) {
    return InvalidArgument("config: expected an object, got " + Show(given));
  }
  Json completed = given;
  CompleteTensors(completed, "input", manifest.inputs, manifest);
  CompleteTensors(completed, "output", manifest.outputs, manifest);
  AOTI_ASSIGN_OR_RETURN(const ModelConfig parsed, ParseModelConfig(completed.dump()));
  const bool rows = manifest.wire == Wire::kRows;
  int64_t max_batch_size = parsed.max_batch_size;
  // An unset max_batch_size and a 0 are the same to protobuf.
  if (rows && max_batch_size == 0) {
    max_batch_size = manifest.batch_max;
    completed["max_batch_size"] = max_batch_size;
  }
  const bool scheduled =
      completed.contains("dynamic_batching") || completed.contains("sequence_batching");
  if (rows && max_batch_size > 1 && !scheduled) {
    completed["dynamic_batching"] = Json::object();
  }
  return completed == given ? std::string(config) : completed.dump();
}

}  // namespace aoti
