#include "complete_config.h"

#include <gmock/gmock.h>

#include "model_config.h"
#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::HasSubstr;

Json Completed(const Json& config, const Json& manifest = ManifestJson()) {
  const Result<std::string> text = CompleteConfig(config.dump(), Parsed(manifest));
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? Json::parse(*text) : Json();
}

std::string Contradiction(const Json& config) {
  const Json completed = Completed(config);
  return CheckConfig(*ParseModelConfig(completed.dump()), Parsed(ManifestJson())).message();
}

const Json kInputs = Json::parse(R"([
  {"name": "ids", "data_type": "TYPE_INT64", "dims": [-1]},
  {"name": "lengths", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}])");
const Json kOutputs =
    Json::parse(R"([{"name": "scores", "data_type": "TYPE_FP32", "dims": [-1]}])");

TEST(CompleteConfig, FillsInAllOfIt) {
  const Json config = Completed({{"backend", "aoti"}});
  EXPECT_EQ(config["backend"], "aoti");
  EXPECT_EQ(config["max_batch_size"], 8);
  EXPECT_EQ(config["input"], kInputs);
  EXPECT_EQ(config["output"], kOutputs);
  EXPECT_EQ(config["dynamic_batching"], Json::object());
  EXPECT_FALSE(config.contains("instance_group"));
}

TEST(CompleteConfig, KeepsWhatIsSaid) {
  const Json config = Completed({{"max_batch_size", 4},
                                 {"dynamic_batching", {{"max_queue_delay_microseconds", "50"}}},
                                 {"parameters", {{"threads", {{"string_value", "2"}}}}},
                                 {"output", {{{"name", "scores"}}}}});
  EXPECT_EQ(config["max_batch_size"], 4);
  EXPECT_EQ(config["dynamic_batching"]["max_queue_delay_microseconds"], "50");
  EXPECT_EQ(config["parameters"]["threads"]["string_value"], "2");
  EXPECT_EQ(config["output"], kOutputs);
  EXPECT_FALSE(Completed({{"max_batch_size", 1}}).contains("dynamic_batching"));
  EXPECT_FALSE(Completed({{"sequence_batching", Json::object()}}).contains("dynamic_batching"));
}

TEST(CompleteConfig, FillsInTheInputsThatAreMissing) {
  const Json config = Completed(
      {{"input", {{{"name", "lengths"}, {"data_type", "TYPE_INVALID"}, {"dims", Json::array()}}}}});
  EXPECT_EQ(config["input"], kInputs);
}

TEST(CompleteConfig, AWholeOneComesBackAsItWas) {
  const std::string text = Completed({{"backend", "aoti"}}).dump(2);
  const Result<std::string> again = CompleteConfig(text, Parsed(ManifestJson()));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, text);
}

TEST(CompleteConfig, WhatContradictsIsLeftToBeRefused) {
  EXPECT_THAT(Contradiction({{"max_batch_size", 9}}), HasSubstr("max_batch_size: the manifest"));
  EXPECT_THAT(Contradiction({{"input", {{{"name", "ids"}, {"data_type", "TYPE_INT32"}}}}}),
              HasSubstr("input 'ids'.data_type: the manifest expects TYPE_INT64, got TYPE_INT32"));
  EXPECT_THAT(Contradiction({{"input", {{{"name", "ids"}, {"dims", {-1, 4}}}}}}),
              HasSubstr("input 'ids'.dims: the manifest expects [-1], got [-1, 4]"));
  EXPECT_THAT(Contradiction({{"input", {{{"name", "lengths"}, {"dims", {1}}}}}}),
              HasSubstr("input 'lengths'.reshape: the manifest expects an empty shape, got none"));
  EXPECT_THAT(
      Contradiction({{"output", {{{"name", "z"}, {"data_type", "TYPE_FP32"}, {"dims", {1}}}}}}),
      HasSubstr("output 'z': the manifest expects no such output"));
  EXPECT_THAT(Contradiction({{"input", {{{"name", "ids"}, {"optional", true}}}}}),
              HasSubstr("input 'ids'.optional: the manifest expects false"));
  EXPECT_FALSE(CompleteConfig("[", Parsed(ManifestJson())).ok());
  EXPECT_FALSE(CompleteConfig(R"({"input": 3})", Parsed(ManifestJson())).ok());
}

TEST(CompleteConfig, SingleIsNotBatched) {
  Json manifest = ManifestJson();
  manifest["wire"] = "single";
  manifest["inputs"].push_back(Tensor("scale", "float32", "FP32", Json::array()));
  manifest["inputs"][2]["default"] = 1.5;
  const Json config = Completed({{"backend", "aoti"}}, manifest);
  EXPECT_FALSE(config.contains("max_batch_size"));
  EXPECT_FALSE(config.contains("dynamic_batching"));
  EXPECT_EQ(config["input"][0]["dims"], Json({-1, -1}));
  EXPECT_EQ(config["input"][2], Json::parse(R"({"name": "scale", "data_type": "TYPE_FP32",
                                                "dims": [1], "optional": true})"));
}

}  // namespace
}  // namespace aoti
