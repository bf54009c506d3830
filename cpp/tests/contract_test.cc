// What a manifest says beyond names, types and shapes: defaults, values that were compiled in,
// sizes that are computed, the order of axes.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gmock/gmock.h>

#include <cstring>

#include "batch.h"
#include "checks.h"
#include "fake_server.h"
#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- defaults

template <typename T>
T Value(const Json& json, const char* dtype) {
  const Result<Element> element = ToElement(json, *FindDatatype(dtype));
  EXPECT_TRUE(element.ok()) << element.status().message();
  T value{};
  if (element.ok()) std::memcpy(&value, element->bytes.data(), sizeof(value));
  return value;
}

TEST(Element, IsExactInEveryType) {
  EXPECT_EQ(Value<uint8_t>(true, "bool"), 1);
  EXPECT_EQ(Value<uint8_t>(255, "uint8"), 255);
  EXPECT_EQ(Value<uint16_t>(65535, "uint16"), 65535);
  EXPECT_EQ(Value<uint32_t>(4294967295u, "uint32"), 4294967295u);
  EXPECT_EQ(Value<uint64_t>(UINT64_MAX, "uint64"), UINT64_MAX);
  EXPECT_EQ(Value<int8_t>(-128, "int8"), -128);
  EXPECT_EQ(Value<int16_t>(-32768, "int16"), -32768);
  EXPECT_EQ(Value<int32_t>(INT32_MIN, "int32"), INT32_MIN);
  EXPECT_EQ(Value<int64_t>(INT64_MIN, "int64"), INT64_MIN);
  EXPECT_EQ(Value<int64_t>((int64_t{1} << 62) + 1, "int64"), (int64_t{1} << 62) + 1);
  EXPECT_EQ(Value<uint16_t>(0.1, "float16"), 0x2E66);   // 0.0999755859375
  EXPECT_EQ(Value<uint16_t>(0.1, "bfloat16"), 0x3DCD);  // 0.10009765625
  EXPECT_EQ(Value<uint16_t>(65504, "float16"), 0x7BFF);
  EXPECT_EQ(Value<float>(0.1, "float32"), 0.1f);
  EXPECT_EQ(Value<double>(0.1, "float64"), 0.1);
  EXPECT_EQ(Value<double>(3, "float64"), 3.0);
}

struct Misfit {
  Json value;
  const char* dtype;
  const char* message;
};

TEST(Element, ATypeThatCannotHoldItSaysSo) {
  const std::vector<Misfit> misfits{
      {256, "uint8", "expected a whole number from 0 to 255, got 256"},
      {-1, "uint64", "from 0 to 18446744073709551615, got -1"},
      {UINT64_MAX, "int64", "to 9223372036854775807, got 18446744073709551615"},
      {-129, "int8", "from -128 to 127, got -129"},
      {1.0, "int32", "expected a whole number from -2147483648 to 2147483647, got 1.0"},
      {true, "int32", "expected a whole number"},
      {1, "bool", "expected true or false, got 1"},
      {65520, "float16", "expected a finite number that float16 holds, got 65520"},
      {1e39, "bfloat16", "expected a finite number that bfloat16 holds"},
      {1e39, "float32", "expected a finite number that float32 holds"},
      {"1", "float64", "expected a finite number that float64 holds, got \"1\""},
  };
  for (const Misfit& misfit : misfits) {
    const Result<Element> element = ToElement(misfit.value, *FindDatatype(misfit.dtype));
    ASSERT_FALSE(element.ok()) << misfit.dtype;
    EXPECT_THAT(element.status().message(), HasSubstr(misfit.message));
  }
}

// ids [b, n] required; lengths [b] 7 and weights [b, n] 0.5 where they are left out.
Json OptionalJson() {
  Json json = ManifestJson();
  json["inputs"][1]["default"] = 7;
  json["inputs"].push_back(Tensor("weights", "bfloat16", "BF16", {"b", "n"}));
  json["inputs"][2]["default"] = 0.5;
  json["baked"] = {{{"name", "k"}, {"value", 3}}, {{"name", "mode"}, {"value", "fast"}}};
  return json;
}

TEST(OptionalInput, IsFilledInTheShapeThatTheOthersTell) {
  const Manifest manifest = Parsed(OptionalJson());
  const RequestChecker checker("ranker", manifest);
  std::vector<std::unique_ptr<TRITONBACKEND_Request>> requests;
  std::vector<CheckedRequest> checked(2);
  for (const int64_t rows : {2, 1}) {
    requests.push_back(fake::NewRequest({"scores"}));
    requests.back()->Add("ids", TRITONSERVER_TYPE_INT64, {rows, 3},
                         std::vector<int64_t>(static_cast<size_t>(rows) * 3, rows));
  }
  // The second brings its own lengths: the server would not join them, the backend could.
  requests[1]->Add("lengths", TRITONSERVER_TYPE_INT64, {1}, std::vector<int64_t>{9});
  for (size_t i = 0; i < 2; ++i) {
    const Status status = checker.Check(requests[i].get(), checked[i]);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_THAT(checked[0].inputs[1].shape, ElementsAre(2));
  EXPECT_THAT(checked[0].inputs[2].shape, ElementsAre(2, 3));
  EXPECT_EQ(checked[0].inputs[2].bytes, 12u);
  Gatherer gatherer(manifest, Place{});
  const CheckedRequest* members[] = {&checked[0], &checked[1]};
  const auto inputs = gatherer.Gather(members, 3);
  ASSERT_TRUE(inputs.ok());
  const auto* lengths = static_cast<const int64_t*>((*inputs)[1].data);
  EXPECT_THAT(std::vector<int64_t>(lengths, lengths + 3), ElementsAre(7, 7, 9));
  const auto* weights = static_cast<const uint16_t*>((*inputs)[2].data);
  EXPECT_THAT(std::vector<uint16_t>(weights, weights + 9), Each(0x3F00));
  EXPECT_EQ(fake::LiveObjects(), 0);
}

TEST(OptionalInput, ARequiredOneStaysRequired) {
  const Manifest manifest = Parsed(OptionalJson());
  const RequestChecker checker("ranker", manifest);
  CheckedRequest checked;
  auto request = fake::NewRequest({"scores"});
  request->Add("lengths", TRITONSERVER_TYPE_INT64, {2}, std::vector<int64_t>{1, 1});
  EXPECT_EQ(checker.Check(request.get(), checked).message(),
            "ranker: input 'ids' is missing, expected INT64 [b, n]");
}

TEST(OptionalInput, OneThatIsThereIsChecked) {
  const Manifest manifest = Parsed(OptionalJson());
  const RequestChecker checker("ranker", manifest);
  CheckedRequest checked;
  auto request = fake::NewRequest({"scores"});
  request->Add("ids", TRITONSERVER_TYPE_INT64, {2, 3}, std::vector<int64_t>(6));
  request->Add("lengths", TRITONSERVER_TYPE_INT64, {3}, std::vector<int64_t>(3));
  EXPECT_THAT(checker.Check(request.get(), checked).message(),
              HasSubstr("input 'lengths' expected shape [b], got [3]: dimension 0 (b) is 3, but "
                        "input 'ids' has b = 2"));
}

std::string Refusal(const Json& json) {
  const Result<Manifest> manifest = ParseManifest(json.dump());
  return manifest.ok() ? "" : manifest.status().message();
}

TEST(OptionalInput, ASizeThatNoRequiredInputTellsIsRefusedAtLoad) {
  Json json = OptionalJson();
  json["inputs"][0]["default"] = 1;
  json["inputs"][1].erase("default");
  EXPECT_EQ(
      Refusal(json),
      "manifest.inputs.ids: no input without a default tells 'n' of its shape [b, n]: require "
      "an input that has it, and compile the package again");
  json = ManifestJson();
  json["symbols"].push_back({{"name", "z"}, {"min", 1}, {"max", 2}});
  json["outputs"][0]["shape"] = {"b", "z + 1"};
  EXPECT_THAT(Refusal(json), HasSubstr("outputs.scores: no input without a default tells 'z'"));
}

TEST(OptionalInput, ADefaultThatDoesNotFitIsRefusedAtLoad) {
  Json json = ManifestJson();
  json["inputs"][1]["default"] = 0.5;
  EXPECT_THAT(Refusal(json), HasSubstr("inputs.lengths.default: expected a whole number from"));
  json = ManifestJson();
  json["outputs"][0]["default"] = 0.5;
  EXPECT_THAT(Refusal(json), HasSubstr("outputs.scores.default: expected none on an output"));
}

// ---- the order of axes

TEST(DimOrder, RowMajorIsServedAndNothingElse) {
  Json json = ManifestJson();
  json["inputs"][0]["dim_order"] = {0, 1};
  json["outputs"][0]["dim_order"] = {1, 0};  // brought into order when it leaves the package
  EXPECT_EQ(Refusal(json), "");
  json["inputs"][0]["dim_order"] = {1, 0};
  EXPECT_EQ(Refusal(json),
            "manifest.inputs.ids.dim_order: requests carry tensors row-major, [0,1], and the "
            "package takes this one as [1,0]: compile it with a contiguous example");
  json["inputs"][0]["dim_order"] = "C";
  EXPECT_THAT(Refusal(json), HasSubstr("inputs[0].dim_order: expected a list"));
}

// ---- values that were compiled in

class Baked : public ::testing::Test {
 protected:
  std::string Check(FakeParameter parameter) {
    auto request = fake::NewRequest({"scores"});
    request->Add("ids", TRITONSERVER_TYPE_INT64, {1, 2}, std::vector<int64_t>{1, 2});
    request->parameters = {{"other", int64_t{5}}, std::move(parameter)};
    CheckedRequest checked;
    const Status status = checker_.Check(request.get(), checked);
    return status.message();
  }

  const Manifest manifest_ = Parsed(OptionalJson());
  const RequestChecker checker_{"ranker", manifest_};
};

TEST_F(Baked, TheSameValuePasses) {
  EXPECT_EQ(Check({"k", int64_t{3}}), "");
  EXPECT_EQ(Check({"k", 3.0}), "");
  EXPECT_EQ(Check({"mode", "fast"}), "");
}

TEST_F(Baked, AnotherValueIsRefusedNamingBoth) {
  EXPECT_EQ(
      Check({"k", int64_t{5}}),
      "ranker: parameter 'k' is compiled in as 3, got 5: leave it out, or serve a package that "
      "is compiled for that value");
  EXPECT_THAT(Check({"k", 3.5}), HasSubstr("compiled in as 3, got 3.5"));
  EXPECT_THAT(Check({"k", true}), HasSubstr("compiled in as 3, got true"));
  EXPECT_THAT(Check({"k", "3"}), HasSubstr("compiled in as 3, got \"3\""));
  EXPECT_THAT(Check({"mode", "slow"}), HasSubstr("compiled in as \"fast\", got \"slow\""));
}

TEST_F(Baked, AnInputOfItsNameIsRefused) {
  auto request = fake::NewRequest({"scores"});
  request->Add("ids", TRITONSERVER_TYPE_INT64, {1, 2}, std::vector<int64_t>{1, 2});
  request->Add("k", TRITONSERVER_TYPE_INT64, {1}, std::vector<int64_t>{3});
  CheckedRequest checked;
  EXPECT_EQ(checker_.Check(request.get(), checked).message(),
            "ranker: input 'k' is compiled in as 3 and is no tensor: leave it out");
}

TEST(BakedValue, EveryKindIsComparedExactly) {
  const Json list = {{"baked",
                      {{{"name", "none"}, {"value", nullptr}},
                       {{"name", "yes"}, {"value", true}},
                       {{"name", "odd"}, {"value", (int64_t{1} << 53) + 1}},
                       {{"name", "half"}, {"value", 0.5}},
                       {{"name", "two"}, {"value", 2.0}}}}};
  const auto baked = ReadBaked(Fields(list, "manifest"));
  ASSERT_TRUE(baked.ok()) << baked.status().message();
  const bool yes = true;
  const int64_t two = 2;
  const double rounded = 9007199254740992.0;  // 2^53, the neighbour of `odd` among doubles
  const double half = 0.5;
  const auto says = [&baked](size_t index, TRITONSERVER_ParameterType type, const void* value) {
    return SaysTheSame((*baked)[index], type, value);
  };
  EXPECT_FALSE(says(0, TRITONSERVER_PARAMETER_STRING, "None"));
  EXPECT_EQ((*baked)[0].text, "null");
  EXPECT_TRUE(says(1, TRITONSERVER_PARAMETER_BOOL, &yes));
  EXPECT_FALSE(says(2, TRITONSERVER_PARAMETER_DOUBLE, &rounded));
  EXPECT_TRUE(says(3, TRITONSERVER_PARAMETER_DOUBLE, &half));
  EXPECT_TRUE(says(4, TRITONSERVER_PARAMETER_INT, &two));
  EXPECT_FALSE(says(3, TRITONSERVER_PARAMETER_INT, &two));
  EXPECT_FALSE(says(3, TRITONSERVER_PARAMETER_BYTES, nullptr));
}

TEST(BakedValue, AWrongListIsNamed) {
  Json json = ManifestJson();
  json["baked"] = {{{"name", "k"}, {"value", {1}}}};
  EXPECT_THAT(Refusal(json),
              HasSubstr("baked[0].value: expected a number, a bool, a text or null"));
  json["baked"] = {{{"name", "k"}, {"value", 1}}, {{"name", "k"}, {"value", 2}}};
  EXPECT_THAT(Refusal(json), HasSubstr("baked: 'k' stands twice"));
}

// ---- sizes that are computed

constexpr std::string_view kSymbols[] = {"b", "n", "m"};

// The value of `text` for b = 2, n = 9, m = 5; -1 for none, -2 for no expression.
int64_t Evaluated(const char* text) {
  const auto parsed = SizeExpression::Parse(text, kSymbols);
  if (!parsed.ok()) return -2;
  const int64_t sizes[] = {2, 9, 5};
  return parsed->Evaluate(sizes).value_or(-1);
}

TEST(SizeExpression, WhatTheExporterWrites) {
  EXPECT_EQ(Evaluated("2*n"), 18);
  EXPECT_EQ(Evaluated("((n + 1)//2)"), 5);
  EXPECT_EQ(Evaluated("n - 1"), 8);
  EXPECT_EQ(Evaluated("n**2"), 81);
  EXPECT_EQ(Evaluated("m + n"), 14);
  EXPECT_EQ(Evaluated("(((n - 3)//2)) + 1"), 4);
  EXPECT_EQ(Evaluated("(Mod(n + 3, 5)) + 5"), 7);
  EXPECT_EQ(Evaluated("Max(m, n)"), 9);
  EXPECT_EQ(Evaluated("Min(m, n, 3)"), 3);
  EXPECT_EQ(Evaluated("((n//3)) + 7"), 10);
  EXPECT_EQ(Evaluated("b*n"), 18);
}

TEST(SizeExpression, BindsAndRoundsAsPythonDoes) {
  EXPECT_EQ(Evaluated("10 - n - 1"), 0);
  EXPECT_EQ(Evaluated("100//n//2"), 5);
  EXPECT_EQ(Evaluated("2*3**2"), 18);
  EXPECT_EQ(Evaluated("2**3**2"), 512);
  EXPECT_EQ(Evaluated("20 + -n//2"), 15);
  EXPECT_EQ(Evaluated("0 - -2**2"), 4);
  EXPECT_EQ(Evaluated("-n % 5 + 0"), 1);
  EXPECT_EQ(Evaluated("(-1)**n + 1"), 0);
}

TEST(SizeExpression, WhatHasNoValueHasNone) {
  EXPECT_EQ(Evaluated("n//(m - 5)"), -1);
  EXPECT_EQ(Evaluated("2**n**n"), -1);
  EXPECT_EQ(Evaluated("2**(0 - n)"), -1);
  EXPECT_EQ(Evaluated("9223372036854775807 + n"), -1);
}

TEST(SizeExpression, AnUnknownFunctionIsToldFromNonsense) {
  const auto code = [](std::string text) {
    return SizeExpression::Parse(text, kSymbols).status().code();
  };
  EXPECT_EQ(code("floor(n)"), StatusCode::kUnsupported);
  EXPECT_EQ(code("n/2"), StatusCode::kUnsupported);
  EXPECT_EQ(code(std::string(100000, '(')), StatusCode::kUnsupported);
  EXPECT_EQ(code(std::string(100000, '-')), StatusCode::kUnsupported);
  for (const char* nonsense :
       {"", "n +", "(n", "z + 1", "99999999999999999999", "2n", "Mod(n)", "Max(n", "Max()"}) {
    EXPECT_EQ(code(nonsense), StatusCode::kInvalidArgument) << nonsense;
  }
}

TEST(SizeExpression, AManifestNamesWhatIsNotChecked) {
  Json json = ManifestJson();
  json["outputs"][0]["shape"] = {"b", "2*n"};
  EXPECT_TRUE(Parsed(json).UncheckedSizes().empty());
  json["outputs"][0]["shape"] = {"b", "floor(n)"};
  EXPECT_THAT(Parsed(json).UncheckedSizes(),
              ElementsAre("output 'scores': the size 'floor(n)' of axis 1"));
  json["outputs"][0]["shape"] = {"b", "2*z"};
  EXPECT_THAT(Refusal(json), HasSubstr("outputs.scores: the size '2*z': 'z' is no symbol"));
}

}  // namespace
}  // namespace aoti
