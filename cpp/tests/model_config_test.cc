#include "model_config.h"

#include <gmock/gmock.h>

#include <ostream>

#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::HasSubstr;

// The server's JSON of a configuration that fits ManifestJson().
Json ConfigJson() {
  return Json::parse(R"({
    "name": "ranker", "backend": "aoti", "max_batch_size": 8,
    "input": [{"name": "ids", "data_type": "TYPE_INT64", "dims": [-1]},
              {"name": "lengths", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}],
    "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": ["-1"]}],
    "instance_group": [{"kind": "KIND_CPU", "count": 2}, {"kind": "KIND_CPU", "count": 1}],
    "parameters": {"threads": {"string_value": "3"}}
  })");
}

TEST(ModelConfig, HoldsWhatTheServerSays) {
  const Result<ModelConfig> config = ParseModelConfig(ConfigJson().dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->max_batch_size, 8);
  EXPECT_EQ(config->instances, 3u);
  EXPECT_EQ(config->threads, "3");
  EXPECT_EQ(config->outputs[0].dims, std::vector<int64_t>{-1});
  EXPECT_TRUE(config->inputs[1].reshape.has_value());
  const Status status = CheckConfig(*config, Parsed(ManifestJson()));
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ModelConfig, DefaultsWhereTheServerSaysNothing) {
  const Result<ModelConfig> config = ParseModelConfig("{}");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->max_batch_size, 0);
  EXPECT_EQ(config->instances, 1u);
  EXPECT_EQ(config->threads, "");
}

TEST(ModelConfig, CountsInstancesOfEveryGroup) {
  const auto count = [](const char* groups) {
    return ParseModelConfig("{\"instance_group\": " + std::string(groups) + "}")->instances;
  };
  EXPECT_EQ(count("[]"), 1u);
  EXPECT_EQ(count(R"([{"kind": "KIND_CPU"}])"), 1u);
  EXPECT_EQ(count(R"([{"count": 2}, {"count": "3"}])"), 5u);
  // The count of a group on GPUs is that of each of them.
  EXPECT_EQ(count(R"([{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1, 3]}, {"count": 1}])"), 7u);
}

struct Contradiction {
  const char* pointer;
  Json value;
  const char* message;
};

// Names the case in a failure.
void PrintTo(const Contradiction& tried, std::ostream* out) {
  *out << tried.pointer;
}

class ConfigContradicts : public ::testing::TestWithParam<Contradiction> {};

TEST_P(ConfigContradicts, NamingFieldExpectedAndGiven) {
  Json json = ConfigJson();
  const Json::json_pointer pointer(GetParam().pointer);
  if (GetParam().value.is_null()) {
    Json& parent = json.at(pointer.parent_pointer());
    if (parent.is_array()) {
      parent.erase(std::stoul(pointer.back()));
    } else {
      parent.erase(pointer.back());
    }
  } else {
    json[pointer] = GetParam().value;
  }
  const Result<ModelConfig> config = ParseModelConfig(json.dump());
  const Status status =
      config.ok() ? CheckConfig(*config, Parsed(ManifestJson())) : config.status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ConfigContradicts,
    ::testing::Values(
        Contradiction{"/max_batch_size", 0, "max_batch_size: the manifest expects 1..8, got 0"},
        Contradiction{"/max_batch_size", 9, "max_batch_size: the manifest expects 1..8, got 9"},
        Contradiction{"/max_batch_size", "many", "config.max_batch_size: expected a whole number"},
        Contradiction{"/input/0", nullptr, "input 'ids': the manifest expects INT64 [b, n]"},
        Contradiction{"/input/0/name", "idz", "input 'ids': the manifest expects"},
        Contradiction{"/input/2",
                      {{"name", "z"}, {"data_type", "TYPE_FP32"}, {"dims", {1}}},
                      "input 'z': the manifest expects no such input, got TYPE_FP32"},
        Contradiction{"/input/0/data_type", "TYPE_INT32",
                      "input 'ids'.data_type: the manifest expects TYPE_INT64, got TYPE_INT32"},
        Contradiction{
            "/input/0/dims", {-1, 2}, "input 'ids'.dims: the manifest expects [-1], got [-1, 2]"},
        Contradiction{
            "/input/0/dims", {65}, "input 'ids'.dims: the manifest expects [-1], got [65]"},
        Contradiction{
            "/input/1/dims", {2}, "input 'lengths'.dims: the manifest expects [1], got [2]"},
        Contradiction{"/input/1/reshape", nullptr,
                      "input 'lengths'.reshape: the manifest expects an empty shape, got none"},
        Contradiction{"/input/0/reshape",
                      {{"shape", {-1, 1}}},
                      "input 'ids'.reshape: the manifest expects none, got [-1, 1]"},
        Contradiction{"/output/0/name", "score",
                      "output 'scores': the manifest expects FP32 [b, n]"},
        Contradiction{"/output/0/data_type", "TYPE_FP16",
                      "output 'scores'.data_type: the manifest expects TYPE_FP32, got TYPE_FP16"},
        Contradiction{"/parameters/threads/string_value", "",
                      "config.parameters.threads.string_value: expected a whole number"}));

TEST(ModelConfig, ATensorThatStandsTwiceIsRefused) {
  Json json = ConfigJson();
  json["input"].push_back(json["input"][0]);
  EXPECT_THAT(CheckConfig(*ParseModelConfig(json.dump()), Parsed(ManifestJson())).message(),
              HasSubstr("input 'ids': the manifest expects it once, got it several times"));
}

TEST(ModelConfig, AFixedSizeInTheRangeNarrows) {
  Json json = ConfigJson();
  json["input"][0]["dims"] = {64};
  EXPECT_TRUE(CheckConfig(*ParseModelConfig(json.dump()), Parsed(ManifestJson())).ok());
}

TEST(ModelConfig, SingleTakesNoBatchAndNoReshape) {
  Json manifest = ManifestJson();
  manifest["wire"] = "single";
  manifest["inputs"] = {Tensor("ids", "int64", "INT64", {"b", 4}),
                        Tensor("lengths", "int64", "INT64", Json::array())};
  manifest["outputs"] = {Tensor("scores", "float32", "FP32", {"b", "b"})};
  Json json = ConfigJson();
  json["max_batch_size"] = 0;
  json["input"][0]["dims"] = {-1, 4};
  json["input"][1].erase("reshape");
  json["output"][0]["dims"] = {-1, -1};
  const auto check = [&] { return CheckConfig(*ParseModelConfig(json.dump()), Parsed(manifest)); };
  EXPECT_TRUE(check().ok()) << check().message();
  json["input"][0]["dims"] = {-1, 5};
  EXPECT_THAT(check().message(), HasSubstr("the manifest expects [-1, 4], got [-1, 5]"));
  json["input"][0]["dims"] = {-1, 4};
  json["max_batch_size"] = 4;
  EXPECT_THAT(check().message(), HasSubstr("max_batch_size: the manifest expects 0 (wire"));
}

}  // namespace
}  // namespace aoti
