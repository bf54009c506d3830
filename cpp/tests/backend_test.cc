// The whole way through the C entry points, with packages that torch compiled.
#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "fake_server.h"
#include "json.h"
#include "manifest.h"
#include "temp_folder.h"

namespace aoti {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of the test repository, loaded as the server does it.
class Loaded {
 public:
  // Whether other threads load models meanwhile, with objects of their own.
  enum class Others { kNone, kMayLoad };

  explicit Loaded(const std::string& name, size_t instances = 1, const std::string& threads = "1",
                  Others others = Others::kNone)
      : Loaded(name, std::filesystem::path(AOTI_TEST_REPOSITORY) / name, instances, threads,
               others) {}

  Loaded(const std::string& name, const std::filesystem::path& folder, size_t instances,
         const std::string& threads, Others others = Others::kNone)
      : others_(others) {
    model_.name = name;
    model_.folder = folder.string();
    model_.config = Config(folder / "1", instances, threads).dump();
    Start(instances);
  }

  // With a configuration of its own, which the backend may complete or not.
  Loaded(const std::string& name, const std::string& config, bool complete) {
    model_.name = name;
    model_.folder = (std::filesystem::path(AOTI_TEST_REPOSITORY) / name).string();
    model_.config = config;
    model_.complete = complete;
    Start(1);
  }

  const std::string& config() const { return model_.config; }

  void Start(size_t instances) {
    error_ = fake::Message(TRITONBACKEND_ModelInitialize(&model_));
    for (size_t i = 0; error_.empty() && i < instances; ++i) error_ = AddInstance();
  }

  // As the server does it when only the instance count of a model's configuration grows.
  std::string AddInstance() {
    auto instance = std::make_unique<TRITONBACKEND_ModelInstance>();
    instance->model = &model_;
    std::string error = fake::Message(TRITONBACKEND_ModelInstanceInitialize(instance.get()));
    if (error.empty()) instances_.push_back(std::move(instance));
    return error;
  }

  ~Loaded() {
    for (const auto& instance : instances_) {
      EXPECT_EQ(fake::Message(TRITONBACKEND_ModelInstanceFinalize(instance.get())), "");
    }
    if (model_.state != nullptr) {
      EXPECT_EQ(fake::Message(TRITONBACKEND_ModelFinalize(&model_)), "");
    }
    if (others_ == Others::kNone) {
      EXPECT_EQ(fake::LiveObjects(), 0);
    }
  }

  const std::string& error() const { return error_; }
  TRITONBACKEND_ModelInstance& instance(size_t index = 0) { return *instances_.at(index); }

  // One call of Execute; every request is answered, counted and released by its end.
  void Execute(const std::vector<TRITONBACKEND_Request*>& requests, size_t index = 0) {
    std::vector<TRITONBACKEND_Request*> handles = requests;
    EXPECT_EQ(fake::Message(TRITONBACKEND_ModelInstanceExecute(
                  &instance(index), handles.data(), static_cast<uint32_t>(handles.size()))),
              "");
    for (const TRITONBACKEND_Request* request : requests) {
      EXPECT_TRUE(request->released);
      EXPECT_EQ(request->reported_success + request->reported_failure, 1);
    }
  }

 private:
  // config.pbtxt as the server would hand it over, for the manifest in `folder`.
  static Json Config(const std::filesystem::path& folder, size_t instances,
                     const std::string& threads) {
    const Result<Manifest> manifest = LoadManifest(folder);
    if (!manifest.ok()) return Json::object();
    const bool rows = manifest->wire == Wire::kRows;
    const auto tensors = [&](const std::vector<TensorSpec>& specs) {
      Json list = Json::array();
      for (const TensorSpec& spec : specs) {
        Json dims = Json::array();
        for (size_t axis = rows ? 1 : 0; axis < spec.shape.size(); ++axis) {
          const Dim& dim = spec.shape[axis];
          dims.push_back(dim.kind == Dim::Kind::kFixed ? dim.size : -1);
        }
        Json item = {{"name", spec.name},
                     {"data_type", "TYPE_" + std::string(spec.datatype->wire_name)}};
        if (dims.empty()) {
          dims = {1};
          if (rows) item["reshape"] = {{"shape", Json::array()}};
        }
        item["dims"] = dims;
        if (spec.fill) item["optional"] = true;
        list.push_back(item);
      }
      return list;
    };
    return {{"max_batch_size", rows ? manifest->batch_max : 0},
            {"input", tensors(manifest->inputs)},
            {"output", tensors(manifest->outputs)},
            {"instance_group", {{{"kind", "KIND_CPU"}, {"count", instances}}}},
            {"parameters", {{"threads", {{"string_value", threads}}}}}};
  }

  const Others others_ = Others::kNone;
  TRITONBACKEND_Model model_;
  std::vector<std::unique_ptr<TRITONBACKEND_ModelInstance>> instances_;
  std::string error_;
};

std::vector<float> Noise(size_t count, int seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::sin(1.7 * seed + 0.37 * static_cast<double>(i)) * 3);
  }
  return values;
}

struct ArithCall {
  ArithCall(int64_t rows, int seed, std::vector<size_t> split = {}, size_t misalign = 0)
      : x(Noise(static_cast<size_t>(rows) * 16, seed)),
        y(Noise(static_cast<size_t>(rows) * 16, seed + 1)),
        request(fake::NewRequest({"out", "total"})) {
    request->Add("x", TRITONSERVER_TYPE_FP32, {rows, 16}, x, split, misalign);
    request->Add("y", TRITONSERVER_TYPE_FP32, {rows, 16}, y);
  }

  void ExpectRight() const {
    const auto out = request->Output("out").Values<float>();
    const auto total = request->Output("total").Values<float>();
    ASSERT_EQ(out.size(), x.size());
    ASSERT_EQ(total.size(), x.size() / 16);
    for (size_t row = 0; row < total.size(); ++row) {
      double sum = 0;
      for (size_t i = row * 16; i < (row + 1) * 16; ++i) {
        const double expected = std::sin(static_cast<double>(x[i])) * 2 + y[i];
        EXPECT_NEAR(out[i], expected, 1e-5);
        sum += expected;
      }
      EXPECT_NEAR(total[row], sum, 1e-4);
    }
  }

  std::vector<float> x;
  std::vector<float> y;
  std::unique_ptr<TRITONBACKEND_Request> request;
};

TEST(Backend, RefusesAServerOfAnotherAbi) {
  EXPECT_EQ(fake::Message(TRITONBACKEND_Initialize(nullptr)), "");
  fake::SetAbiVersion(1, 99);
  EXPECT_EQ(fake::Message(TRITONBACKEND_Initialize(nullptr)), "");
  fake::SetAbiVersion(1, 18);
  EXPECT_EQ(fake::Message(TRITONBACKEND_Initialize(nullptr)),
            "the aoti backend needs version 1.19 or later of the backend ABI, the server has 1.18");
  fake::SetAbiVersion(2, 19);
  EXPECT_THAT(fake::Message(TRITONBACKEND_Initialize(nullptr)), HasSubstr("the server has 2.19"));
  fake::SetAbiVersion(kAbiMajor, kAbiMinor);
}

TEST(Backend, AnswersOneRequest) {
  Loaded model("arith");
  ASSERT_EQ(model.error(), "");
  const ArithCall call(3, 1);
  model.Execute({call.request.get()});
  call.ExpectRight();
  EXPECT_THAT(call.request->Output("out").shape, ElementsAre(3, 16));
  EXPECT_THAT(call.request->Output("total").shape, ElementsAre(3));
  EXPECT_EQ(call.request->Output("total").datatype, TRITONSERVER_TYPE_FP32);
}

TEST(Backend, JoinsAndCuts) {
  Loaded model("arith");
  const ArithCall one(1, 1);
  const ArithCall three(3, 2, {5, 43}, 1);
  const ArithCall two(2, 3);
  model.Execute({one.request.get(), three.request.get(), two.request.get()});
  for (const ArithCall* call : {&one, &three, &two}) call->ExpectRight();
  ASSERT_EQ(model.instance().runs.size(), 1u);
  EXPECT_EQ(model.instance().runs[0].rows, 6u);
}

TEST(Backend, ReadsMisalignedInputs) {
  Loaded model("arith");
  const ArithCall call(3, 1, {}, 1);
  model.Execute({call.request.get()});
  call.ExpectRight();
}

TEST(Backend, SplitsWhatIsLargerThanTheProof) {
  Loaded model("arith");
  const ArithCall a(40, 1);
  const ArithCall b(30, 2);
  model.Execute({a.request.get(), b.request.get()});
  a.ExpectRight();
  b.ExpectRight();
  ASSERT_EQ(model.instance().runs.size(), 2u);
  EXPECT_EQ(model.instance().runs[0].rows, 40u);
  EXPECT_EQ(model.instance().runs[1].rows, 30u);
}

TEST(Backend, IntegersAndBools) {
  Loaded model("select");
  auto request = fake::NewRequest({"rest", "chosen"});
  const std::vector<int32_t> values{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<uint8_t> mask{1, 0, 1, 0, 1, 0, 1, 0};
  request->Add("values", TRITONSERVER_TYPE_INT32, {1, 8}, values);
  request->Add("mask", TRITONSERVER_TYPE_BOOL, {1, 8}, mask);
  model.Execute({request.get()});
  EXPECT_THAT(request->Output("chosen").Values<int32_t>(),
              ElementsAre(3, -2, 9, -4, 15, -6, 21, -8));
  EXPECT_THAT(request->Output("rest").Values<uint8_t>(), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_EQ(request->Output("rest").datatype, TRITONSERVER_TYPE_BOOL);
}

TEST(Backend, HalfPrecision) {
  Loaded model("half");
  auto request = fake::NewRequest({"out"});
  const std::vector<uint16_t> x{0x3F80, 0x4000, 0xBF80, 0x0000};  // 1, 2, -1, 0
  request->Add("x", TRITONSERVER_TYPE_BF16, {1, 4}, x);
  model.Execute({request.get()});
  EXPECT_THAT(request->Output("out").Values<uint16_t>(),
              ElementsAre(0x4000, 0x4080, 0xC000, 0x0000));
  EXPECT_EQ(request->Output("out").datatype, TRITONSERVER_TYPE_BF16);
}

TEST(Backend, LengthsOfTheirOwnShape) {
  Loaded model("lookup");
  std::vector<std::unique_ptr<TRITONBACKEND_Request>> requests;
  for (const int64_t n : {2, 3, 2}) {
    requests.push_back(fake::NewRequest({"scores"}));
    requests.back()->Add("ids", TRITONSERVER_TYPE_INT64, {1, n},
                         std::vector<int64_t>(static_cast<size_t>(n), 1));
    requests.back()->Add("lengths", TRITONSERVER_TYPE_INT64, {1}, std::vector<int64_t>{2});
  }
  model.Execute({requests[0].get(), requests[1].get(), requests[2].get()});
  // Row 1 of the table is 8 … 15.
  EXPECT_THAT(requests[0]->Output("scores").Values<float>(), ElementsAre(92, 92));
  EXPECT_THAT(requests[1]->Output("scores").Values<float>(), ElementsAre(92, 92, 0));
  EXPECT_THAT(requests[2]->Output("scores").Values<float>(), ElementsAre(92, 92));
  EXPECT_EQ(model.instance().runs.size(), 2u);
}

TEST(Backend, AnIdPastItsTableFailsAlone) {
  Loaded model("lookup");
  std::vector<std::unique_ptr<TRITONBACKEND_Request>> requests;
  for (const int64_t id : {1, 1000, -1000, 2}) {
    requests.push_back(fake::NewRequest({"scores"}));
    requests.back()->Add("ids", TRITONSERVER_TYPE_INT64, {1, 2}, std::vector<int64_t>{id, 0});
    requests.back()->Add("lengths", TRITONSERVER_TYPE_INT64, {1}, std::vector<int64_t>{2});
  }
  model.Execute({requests[0].get(), requests[1].get(), requests[2].get(), requests[3].get()});
  // Row r of the table is 8 r … 8 r + 7, whose sum is 64 r + 28.
  EXPECT_THAT(requests[0]->Output("scores").Values<float>(), ElementsAre(92, 28));
  EXPECT_THAT(requests[3]->Output("scores").Values<float>(), ElementsAre(156, 28));
  for (const size_t wrong : {1, 2}) {
    EXPECT_EQ(requests[wrong]->ErrorCode(), TRITONSERVER_ERROR_INTERNAL);
    EXPECT_THAT(requests[wrong]->Error(), HasSubstr("lookup: "));
  }
}

TEST(Backend, TensorsWithoutAxes) {
  Loaded model("scale");
  auto request = fake::NewRequest({"out", "total"});
  request->Add("x", TRITONSERVER_TYPE_FP32, {3}, std::vector<float>{1, 2, 3});
  request->Add("factor", TRITONSERVER_TYPE_FP32, {1}, std::vector<float>{2});
  model.Execute({request.get()});
  EXPECT_THAT(request->Output("out").Values<float>(), ElementsAre(2, 4, 6));
  EXPECT_THAT(request->Output("total").Values<float>(), ElementsAre(12));
  EXPECT_TRUE(request->Output("total").shape.empty());
  ASSERT_EQ(model.instance().runs.size(), 1u);
  EXPECT_EQ(model.instance().runs[0].rows, 1u);
}

TEST(Backend, LeftOutInputsAreFilledAndJoined) {
  Loaded model("contract");
  ASSERT_EQ(model.error(), "");
  const std::vector<float> x{1, 2};
  auto bare = fake::NewRequest({"out", "mixed"});
  bare->Add("x", TRITONSERVER_TYPE_FP32, {1, 2}, x);
  bare->parameters = {{"k", int64_t{3}}};
  auto whole = fake::NewRequest({"out", "mixed"});
  whole->Add("x", TRITONSERVER_TYPE_FP32, {1, 2}, x);
  whole->Add("mask", TRITONSERVER_TYPE_BOOL, {1, 2}, std::vector<uint8_t>{1, 0});
  whole->Add("bias", TRITONSERVER_TYPE_INT64, {1}, std::vector<int64_t>{10});
  auto other = fake::NewRequest({"out"});
  other->Add("x", TRITONSERVER_TYPE_FP32, {1, 2}, x);
  other->parameters = {{"k", int64_t{5}}};
  model.Execute({bare.get(), whole.get(), other.get()});
  // The default of bias is 2^62 + 1: beyond it float32 has no room for x * k.
  EXPECT_THAT(bare->Output("out").Values<float>(), ElementsAre(0x1p62f, 0x1p62f, 1, 2));
  EXPECT_THAT(bare->Output("mixed").Values<int64_t>(), ElementsAre((int64_t{1} << 62) + 2));
  EXPECT_THAT(bare->Output("out").shape, ElementsAre(1, 4));
  EXPECT_THAT(whole->Output("out").Values<float>(), ElementsAre(13, 8, 1, 2));
  EXPECT_THAT(whole->Output("mixed").Values<int64_t>(), ElementsAre(9));
  EXPECT_THAT(other->Error(), HasSubstr("contract: parameter 'k' is compiled in as 3, got 5"));
  ASSERT_EQ(model.instance().runs.size(), 1u);
  EXPECT_EQ(model.instance().runs[0].rows, 2u);
}

TEST(Backend, EveryIntegerTypeAndNoRows) {
  Loaded model("dtypes");
  ASSERT_EQ(model.error(), "");
  for (const int64_t rows : {2, 0}) {
    auto request = fake::NewRequest({"uint64", "int8", "uint16", "int16", "bfloat16", "total"});
    const auto count = static_cast<size_t>(rows) * 4;
    request->Add("x", TRITONSERVER_TYPE_FP32, {rows, 4}, std::vector<float>(count, 3));
    request->Add("ints.uint8", TRITONSERVER_TYPE_UINT8, {rows, 4}, std::vector<uint8_t>(count));
    request->Add("ints.uint32", TRITONSERVER_TYPE_UINT32, {rows, 4}, std::vector<uint32_t>(count));
    request->Add("ints.int32", TRITONSERVER_TYPE_INT32, {rows, 4}, std::vector<int32_t>(count));
    request->Add("ints.int64", TRITONSERVER_TYPE_INT64, {rows, 4}, std::vector<int64_t>(count));
    std::vector<int16_t> own(count);
    for (size_t i = 0; i < count; ++i) own[i] = static_cast<int16_t>(i % 4);
    request->Add("ints.int16", TRITONSERVER_TYPE_INT16, {rows, 4}, own, {}, rows > 0 ? 1 : 0);
    model.Execute({request.get()});
    EXPECT_EQ(request->Output("uint64").Values<uint64_t>(),
              std::vector<uint64_t>(count, UINT64_MAX));
    EXPECT_EQ(request->Output("int8").Values<int8_t>(), std::vector<int8_t>(count, -7));
    EXPECT_EQ(request->Output("uint16").Values<uint16_t>(), std::vector<uint16_t>(count, 65535));
    EXPECT_THAT(request->Output("uint64").shape, ElementsAre(rows, 4));
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(request->Output("int16").Values<int16_t>()[i], (i + 2) % 4);
    }
    EXPECT_EQ(request->Output("bfloat16").bytes, count * 2);
    const double each = 3.0 * static_cast<double>(0.1f);
    EXPECT_DOUBLE_EQ(request->Output("total").Values<double>().at(0),
                     each * static_cast<double>(count));
  }
}

TEST(Backend, CompletesAConfigurationWhereItMay) {
  Loaded model("contract", R"({"backend": "aoti"})", true);
  ASSERT_EQ(model.error(), "");
  const Json config = Json::parse(model.config());
  EXPECT_EQ(config["max_batch_size"], 64);
  EXPECT_EQ(config["input"][1]["name"], "mask");
  EXPECT_EQ(config["input"][1]["optional"], true);
  EXPECT_EQ(config["output"][0]["dims"], Json({-1}));
  const Loaded strict("contract", R"({"backend": "aoti"})", false);
  EXPECT_THAT(strict.error(),
              HasSubstr("config.pbtxt: max_batch_size: the manifest expects 1..64, got 0"));
}

TEST(Backend, InstancesRunAtTheSameTime) {
  constexpr size_t kThreads = 4;
  Loaded model("arith", kThreads);
  ASSERT_EQ(model.error(), "");
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&model, i] {
      for (int round = 0; round < 50; ++round) {
        const ArithCall a(1 + round % 3, static_cast<int>(i) * 1000 + round);
        const ArithCall b(2, static_cast<int>(i) * 1000 - round);
        model.Execute({a.request.get(), b.request.get()}, i);
        a.ExpectRight();
        b.ExpectRight();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) EXPECT_EQ(model.instance(i).runs.size(), 50u);
}

TEST(Backend, LogsItsThreads) {
  fake::TakeLog();
  const Loaded model("arith", 2, "3");
  EXPECT_THAT(fake::TakeLog(), Contains(HasSubstr("arith: 2 instance(s) x 3 thread(s) on ")));
}

TEST(Backend, LoadsAgain) {
  for (int i = 0; i < 3; ++i) {
    Loaded model("arith");
    const ArithCall call(2, i);
    model.Execute({call.request.get()});
    call.ExpectRight();
  }
}

// A copy of a test model whose manifest a test can spoil.
class SpoiledModel : public ::testing::Test {
 protected:
  SpoiledModel() {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(std::filesystem::path(AOTI_TEST_REPOSITORY) / "arith", folder_,
                          std::filesystem::copy_options::recursive);
    std::ifstream stream(Path());
    json_ = Json::parse(std::string{std::istreambuf_iterator<char>(stream), {}});
  }
  ~SpoiledModel() override { std::filesystem::remove_all(folder_); }

  std::string Load() {
    std::ofstream(Path()) << json_;
    return Loaded("arith", folder_, 1, "1").error();
  }

  std::filesystem::path Path() const { return folder_ / "1" / "manifest.json"; }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("aoti_spoiled_" + std::to_string(getpid()));
  Json json_;
};

TEST_F(SpoiledModel, LoadsUntouched) {
  EXPECT_EQ(Load(), "");
}

TEST_F(SpoiledModel, AnUnknownExecutorIsRefused) {
  json_["executor"] = "state";
  EXPECT_EQ(Load(),
            "arith: manifest.executor: this version of the backend has \"plain\", got \"state\"");
}

TEST_F(SpoiledModel, ALackingCpuFeatureIsNamed) {
  json_["target"]["cpu_features"].push_back("time_travel");
  EXPECT_EQ(Load(),
            "arith: the package was compiled for a CPU with time_travel, which this one lacks: "
            "compile it on this machine, or for an older target");
}

TEST_F(SpoiledModel, AnotherDeviceIsRefused) {
  json_["target"]["device"] = "cuda:0";
  EXPECT_EQ(Load(),
            "arith: config.pbtxt: instance_group.kind: the package is for \"cuda:0\" and needs "
            "KIND_GPU, got KIND_CPU");
}

TEST_F(SpoiledModel, AMissingFileIsNamed) {
  std::filesystem::remove(folder_ / "1" / std::string(json_["files"][0]["path"]));
  EXPECT_THAT(Load(), HasSubstr(std::string(json_["files"][0]["path"]) + " is missing"));
}

TEST_F(SpoiledModel, AMissingPackageIsNamed) {
  json_["package"]["path"] = "package/none";
  EXPECT_THAT(Load(), HasSubstr("none of them is of the package at \"package/none\""));
}

TEST_F(SpoiledModel, AHandEditedFileIsRefusedBeforeItIsMapped) {
  const auto path = folder_ / "1" / std::string(json_["files"][0]["path"]);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.put(static_cast<char>(file.peek() ^ 1));
  file.close();
  EXPECT_THAT(Load(), ::testing::MatchesRegex(
                          "arith: .*/package/.* is not the file that the manifest describes: "
                          "expected sha256 [0-9a-f]{12}…, found sha256 [0-9a-f]{12}…: write the "
                          "model again with `aoti-pack`"));
}

TEST_F(SpoiledModel, WhatTorchCannotLoadIsAnError) {
  json_["package"]["path"] = "manifest_copy";
  std::filesystem::create_directory(folder_ / "1" / "manifest_copy");
  std::ofstream(folder_ / "1" / "manifest_copy" / "x") << "abc";
  json_["files"].push_back(
      {{"path", "manifest_copy/x"},
       {"bytes", 3},
       {"sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}});
  EXPECT_THAT(Load(), HasSubstr("manifest_copy cannot be loaded: "));
}

TEST_F(SpoiledModel, AnotherMachineIsRefused) {
  json_["target"]["arch"] = "s390x";
  EXPECT_THAT(Load(), HasSubstr("arith: the package was compiled for s390x, and this machine is "));
}

TEST_F(SpoiledModel, ATorchOutsideTheRangeIsRefused) {
  json_["torch_range"] = {"1.0", "1.2"};
  EXPECT_THAT(Load(),
              HasSubstr("arith: the package needs torch 1.0 to 1.2, and this backend runs "));
}

TEST_F(SpoiledModel, ASizeThatCannotBeComputedIsLogged) {
  json_["wire"] = "single";  // what is joined may not count its rows on another axis
  json_["outputs"][0]["shape"][1] = "floor(b)";
  fake::TakeLog();
  Load();
  EXPECT_THAT(fake::TakeLog(), Contains("arith: output 'out': the size 'floor(b)' of axis 1 cannot "
                                        "be computed here and is not checked"));
}

TEST_F(SpoiledModel, AnotherTorchIsLogged) {
  json_["torch"] = "1.0.0+cpu";
  fake::TakeLog();
  EXPECT_EQ(Load(), "");
  EXPECT_THAT(fake::TakeLog(),
              Contains(HasSubstr("arith: compiled with torch 1.0.0+cpu, served with")));
}

// What `aoti-pack compile` wrote, dropped into a version's folder as it is.
TEST(Backend, ADroppedArchiveServes) {
  const TempFolder store;
  const ScopedVariable variable("AOTI_PACK_STORE", store.path().string());
  Loaded model("dropped");
  ASSERT_EQ(model.error(), "");
  const ArithCall call(3, 1);
  model.Execute({call.request.get()});
  call.ExpectRight();
}

// Case 2: models come and go on many threads at once.
TEST(Backend, Case2EightThreadsLoadTwentyPackagesEach) {
  const std::vector<std::string> names{"arith", "select", "half", "lookup", "scale"};
  std::vector<std::thread> threads;
  std::vector<std::string> told(8, "not run");
  for (size_t i = 0; i < told.size(); ++i) {
    threads.emplace_back([&, i] {
      told[i] = "";
      for (size_t round = 0; round < 20 && told[i].empty(); ++round) {
        Loaded model(names[(i + round) % names.size()], 1, "1", Loaded::Others::kMayLoad);
        told[i] = model.error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(told, ::testing::Each(""));
  EXPECT_EQ(fake::LiveObjects(), 0);
}

// Case 10: one runner, four callers, three of them on instances that came without ModelInitialize.
TEST(Backend, Case10MoreInstancesThanRunners) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  Loaded model("lookup");
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  ASSERT_EQ(model.error(), "");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(model.AddInstance(), "");
  std::vector<std::thread> callers;
  for (size_t i = 0; i < 4; ++i) {
    callers.emplace_back([&model, i] {
      for (int round = 0; round < 50; ++round) {
        // Caller 0 makes the model throw, which must not strand the others.
        const int64_t id = i == 0 ? 1000 : static_cast<int64_t>(i);
        auto request = fake::NewRequest({"scores"});
        request->Add("ids", TRITONSERVER_TYPE_INT64, {1, 2}, std::vector<int64_t>{id, 0});
        request->Add("lengths", TRITONSERVER_TYPE_INT64, {1}, std::vector<int64_t>{2});
        model.Execute({request.get()}, i);
        if (i == 0) {
          EXPECT_EQ(request->ErrorCode(), TRITONSERVER_ERROR_INTERNAL);
        } else {
          EXPECT_THAT(request->Output("scores").Values<float>(),
                      ElementsAre(static_cast<float>(64 * id + 28), 28));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Backend, ABadThreadsParameterIsRefusedAtLoad) {
  const Loaded model("arith", 1, "lots");
  EXPECT_EQ(model.error(),
            "arith: parameter \"threads\": expected a whole number from 1 to 1024, got \"lots\"");
}

}  // namespace
}  // namespace aoti
