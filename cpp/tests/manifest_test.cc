#include "manifest.h"

#include <gmock/gmock.h>

#include <ostream>

#include "temp_folder.h"
#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::HasSubstr;

TEST(Manifest, HoldsWhatTheFileSays) {
  Json json = ManifestJson();
  json["outputs"].push_back(Tensor("more", "bfloat16", "BF16", {"b", "2*n", 3}));
  const Manifest manifest = Parsed(json);
  EXPECT_EQ(manifest.name, "ranker");
  EXPECT_EQ(manifest.wire, Wire::kRows);
  EXPECT_EQ(manifest.package_path, "package/0123456789abcdef");
  EXPECT_EQ(manifest.target.device, "cpu");
  ASSERT_EQ(manifest.inputs.size(), 2u);
  EXPECT_EQ(manifest.inputs[0].ShapeText(), "[b, n]");
  EXPECT_EQ(manifest.inputs[0].datatype->server, TRITONSERVER_TYPE_INT64);
  EXPECT_TRUE(manifest.inputs[0].shape[1].IsSymbol(1));
  ASSERT_EQ(manifest.outputs.size(), 2u);
  EXPECT_EQ(manifest.outputs[1].shape[1].kind, Dim::Kind::kExpression);
  EXPECT_EQ(manifest.outputs[1].shape[2].size, 3);
  EXPECT_EQ(manifest.RowLimit(), 8);
}

TEST(Manifest, RowLimitIsThatOfTheProof) {
  Json json = ManifestJson();
  json["batching"]["max"] = 5;
  EXPECT_EQ(Parsed(json).RowLimit(), 5);
}

TEST(Manifest, WhatHasAValueBySilenceMayBeLeftOut) {
  Json json = ManifestJson();
  json["inputs"][0].erase("mutated");
  json["package"].erase("model_name");
  json["constants"] = {{{"name", "w"}, {"dtype", "float32"}, {"shape", {2}}}};
  const Manifest manifest = Parsed(json);
  EXPECT_FALSE(manifest.inputs[0].mutated);
  EXPECT_EQ(manifest.model_name, "model");
  EXPECT_FALSE(manifest.constants[0].updatable);
}

TEST(Manifest, AConstantOfADtypeThatNobodySendsIsFineUnlessUpdatable) {
  Json json = ManifestJson();
  json["constants"] = {
      {{"name", "turns"}, {"dtype", "complex64"}, {"shape", {2}}, {"updatable", false}}};
  EXPECT_EQ(Parsed(json).constants[0].datatype, nullptr);
  json["constants"][0]["updatable"] = true;
  EXPECT_THAT(ParseManifest(json.dump()).status().message(),
              HasSubstr("manifest.constants[0].dtype: expected a dtype that an updatable"));
}

struct Refusal {
  const char* pointer;  // JSON pointer of the field to change
  Json value;           // its new value; null removes it
  const char* message;
};

// Names the case in a failure.
void PrintTo(const Refusal& tried, std::ostream* out) {
  *out << tried.pointer;
}

class ManifestRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ManifestRefuses, NamingTheField) {
  Json json = ManifestJson();
  const Json::json_pointer pointer(GetParam().pointer);
  if (GetParam().value.is_null()) {
    json.at(pointer.parent_pointer()).erase(pointer.back());
  } else {
    json[pointer] = GetParam().value;
  }
  const Result<Manifest> manifest = ParseManifest(json.dump());
  ASSERT_FALSE(manifest.ok());
  EXPECT_THAT(manifest.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ManifestRefuses,
    ::testing::Values(
        Refusal{"/schema", nullptr, "manifest.schema: expected a string, got nothing"},
        Refusal{"/schema", "one",
                "manifest.schema: expected a version such as \"2.0\", got \"one\""},
        Refusal{"/schema", "2.", "manifest.schema: expected a version such as \"2.0\""},
        Refusal{"/schema", {{{}}}, "manifest.schema: expected a string"},
        Refusal{"/schema", "1.0",
                "manifest.schema: this backend reads version 2, the file has \"1.0\""},
        Refusal{"/name", 3, "manifest.name: expected a string, got 3"},
        Refusal{"/name", "", "manifest.name: expected a name, got \"\""},
        Refusal{"/executor", "magic", "manifest.executor: expected \"plain\", \"state\" or"},
        Refusal{"/torch_range/0", "2", "manifest.torch_range: expected two releases"},
        Refusal{"/package/path", "./.", "manifest.package.path: expected a path below"},
        Refusal{"/executor", nullptr, "manifest.executor: expected a string, got nothing"},
        Refusal{"/wire", "ragged", "serves \"rows\" and \"single\", not \"ragged\""},
        Refusal{"/wire", "flat", "manifest.wire: expected \"rows\" or \"single\", got \"flat\""},
        Refusal{"/package", nullptr, "manifest.package: expected an object, got nothing"},
        Refusal{"/package/path", "../up", "manifest.package.path: expected a path below"},
        Refusal{"/package/path", "/etc", "manifest.package.path: expected a path below"},
        Refusal{"/package/path", "", "manifest.package.path: expected a path below"},
        Refusal{"/package/model_name", 1, "manifest.package.model_name: expected a string"},
        Refusal{"/files", 1, "manifest.files: expected a list, got 1"},
        Refusal{
            "/files/0", {{"path", "a/../../b"}, {"bytes", 1}}, "manifest.files[0].path: expected"},
        Refusal{
            "/files/0", {{"path", "a"}, {"bytes", -1}}, "manifest.files[0].bytes: expected a size"},
        Refusal{"/files/0", 5, "manifest.files[0].path: expected a string, got nothing"},
        Refusal{"/torch", nullptr, "manifest.torch: expected a string"},
        Refusal{"/target", 1, "manifest.target: expected an object, got 1"},
        Refusal{"/target/device", "tpu", "manifest.target.device: expected \"cpu\""},
        Refusal{"/target/device", "cuda:", "manifest.target.device: expected \"cpu\""},
        Refusal{"/target/device", "cuda:x", "manifest.target.device: expected \"cpu\""},
        Refusal{
            "/target/cpu_features", {1}, "manifest.target.cpu_features: expected a list of names"},
        Refusal{"/symbols/1/min", -1, "manifest.symbols: 'n' has the range -1..64"},
        Refusal{"/symbols/1/max", 1, "manifest.symbols: 'n' has the range 2..1"},
        Refusal{"/symbols/1/max", 1.5, "manifest.symbols[1].max: expected a whole number, got 1.5"},
        Refusal{"/symbols/1/max", 18446744073709551615u,
                "manifest.symbols[1].max: expected a whole"},
        Refusal{"/symbols/2",
                {{"name", "b"}, {"min", 1}, {"max", 2}},
                "manifest.symbols: the name 'b' is empty, stands twice"},
        Refusal{"/symbols/1/name", "2n", "manifest."},
        Refusal{"/inputs", nullptr, "manifest.inputs: expected a list, got nothing"},
        Refusal{"/inputs/0/dtype", "complex64", "manifest.inputs.ids: this backend knows no dtype"},
        Refusal{"/inputs/0/datatype", "FP32",
                "dtype \"int64\" goes as datatype \"INT64\", got \"FP32\""},
        Refusal{"/inputs/0/shape/1", "m",
                "manifest.inputs.ids: expected sizes of 0 or more and names"},
        Refusal{"/inputs/0/shape/1", -1,
                "manifest.inputs.ids: expected sizes of 0 or more and names"},
        Refusal{"/inputs/0/shape/1", 2.5,
                "manifest.inputs.ids: expected sizes of 0 or more and names"},
        Refusal{"/inputs/0/mutated", 1,
                "manifest.inputs[0].mutated: expected true or false, got 1"},
        Refusal{"/inputs/1/name", "ids", "manifest.inputs: the name 'ids' is empty, stands twice"},
        Refusal{"/inputs/1/name", "", "manifest.inputs: the name '' is empty"},
        Refusal{"/inputs/0/shape/1", "b",
                "manifest.inputs.ids: expected axis 0 alone to count 'b'"},
        Refusal{"/outputs/0/shape/1", "2*b", "scores: expected axis 0 alone to count 'b'"},
        Refusal{"/outputs/0/shape/1", "2*z", "scores: the size '2*z': 'z' is no symbol"},
        Refusal{"/inputs", Json::array(),
                "manifest.inputs: expected one or more for wire \"rows\""},
        Refusal{"/inputs/1/shape", {4}, "expected axis 0 to be 'b' for wire \"rows\", got [4]"},
        Refusal{"/inputs/1/shape", Json::array(),
                "expected axis 0 to be 'b' for wire \"rows\", got []"},
        Refusal{
            "/outputs/0/shape", {"n", "b"}, "manifest.outputs.scores: expected axis 0 to be 'b'"},
        Refusal{"/outputs/0/shape", {"2*b"}, "manifest.outputs.scores: expected axis 0 to be 'b'"},
        Refusal{"/batching", nullptr, "manifest.batching: expected an object"},
        Refusal{"/batching/symbol", "z", "manifest.batching.symbol: expected the name of a symbol"},
        Refusal{"/batching/symbol", nullptr, "manifest.batching.symbol: expected a symbol"},
        Refusal{"/batching/max", -1, "manifest.batching.max: expected"},
        Refusal{"/batching/max", 9, "manifest.batching.max: expected at most the 8 of 'b', got 9"},
        Refusal{"/batching/proved", false, "\"rows\" joins requests, and batching is not proved"},
        Refusal{"/batching/max", 0, "manifest.batching.max: expected 1 or more, got 0"}));

TEST(Manifest, RefusesWhatIsNoObject) {
  EXPECT_THAT(ParseManifest("[1]").status().message(), HasSubstr("manifest: expected an object"));
  EXPECT_THAT(ParseManifest("{").status().message(), HasSubstr("manifest: not JSON: "));
  EXPECT_THAT(ParseManifest("").status().message(), HasSubstr("manifest: not JSON: "));
  const std::string deep(200000, '[');
  EXPECT_EQ(ParseManifest(deep).status().message(), "manifest: nested more than 200 deep");
  const std::string closed = "{\"schema\":" + deep + std::string(200000, ']') + "}";
  EXPECT_EQ(ParseManifest(closed).status().message(), "manifest: nested more than 200 deep");
}

TEST(Manifest, LoadsFromItsFolder) {
  const TempFolder temp;
  EXPECT_THAT(LoadManifest(temp.path()).status().message(), HasSubstr("cannot be read"));
  Json json = ManifestJson();
  json["files"] = {{{"path", "data"}, {"sha256", std::string(64, 'b')}, {"bytes", 4}}};
  WriteFile(temp.path() / "manifest.json", json.dump());
  const auto manifest = LoadManifest(temp.path());
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  ASSERT_EQ(manifest->files.size(), 1u);
  EXPECT_EQ(manifest->files[0].path, "data");
  EXPECT_EQ(manifest->files[0].bytes, 4u);
  EXPECT_EQ(manifest->files[0].sha256, std::string(64, 'b'));
}

}  // namespace
}  // namespace aoti
