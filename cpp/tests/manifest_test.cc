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

TEST(Manifest, RowLimitIsTheSmallerOfProofAndSymbol) {
  Json json = ManifestJson();
  json["batching"]["max"] = 5;
  EXPECT_EQ(Parsed(json).RowLimit(), 5);
  json["batching"]["max"] = 50;
  EXPECT_EQ(Parsed(json).RowLimit(), 8);
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
        Refusal{"/schema", "1.0",
                "manifest.schema: this backend reads version 2, the file has \"1.0\""},
        Refusal{"/name", 3, "manifest.name: expected a string, got 3"},
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
        Refusal{"/symbols/1/name", "b", "manifest.symbols: 'b' stands twice"},
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
        Refusal{"/inputs/0/mutated", nullptr, "manifest.inputs[0].mutated: expected true or false"},
        Refusal{"/inputs/1/name", "ids", "manifest.inputs: 'ids' stands twice"},
        Refusal{"/inputs/1/shape", {4}, "expected axis 0 to be 'b' for wire \"rows\", got [4]"},
        Refusal{"/inputs/1/shape", Json::array(),
                "expected axis 0 to be 'b' for wire \"rows\", got []"},
        Refusal{
            "/outputs/0/shape", {"n", "b"}, "manifest.outputs.scores: expected axis 0 to be 'b'"},
        Refusal{"/outputs/0/shape", {"2*b"}, "manifest.outputs.scores: expected axis 0 to be 'b'"},
        Refusal{"/batching", nullptr, "manifest.batching: expected an object"},
        Refusal{"/batching/symbol", "z", "manifest.batching.symbol: expected the name of a symbol"},
        Refusal{"/batching/symbol", nullptr, "manifest.batching.symbol: expected a symbol"},
        Refusal{"/batching/proved", false, "\"rows\" joins requests, and batching is not proved"},
        Refusal{"/batching/max", 0, "manifest.batching.max: expected 1 or more, got 0"}));

TEST(Manifest, RefusesWhatIsNoObject) {
  EXPECT_THAT(ParseManifest("[1]").status().message(), HasSubstr("manifest: expected an object"));
  EXPECT_THAT(ParseManifest("{").status().message(), HasSubstr("manifest: not JSON: "));
  EXPECT_THAT(ParseManifest("").status().message(), HasSubstr("manifest: not JSON: "));
  const std::string deep(200000, '[');
  EXPECT_THAT(ParseManifest(deep).status().message(), HasSubstr("manifest: not JSON: "));
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
