// Pushes to a real package, through the C entry points.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <set>
#include <thread>

#include "fake_server.h"
#include "manifest.h"
#include "package.h"
#include "weights_files_for_tests.h"

namespace aoti {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// With these weights the model answers value * value everywhere: the table and the addend of the
// batch-free part are `value`, scale is 1/16, and nothing of the history remains. A mixture of two
// sets gives the product of their values.
std::string TowerWeights(float value) {
  return FileBuilder()
      .Add("items.weight", {100, 16}, value)
      .Add("norm.weight", {16}, 0)
      .Add("norm.bias", {16}, 0)
      .Add("norm.running_mean", {16}, 0)
      .Add("norm.running_var", {16}, 1)
      .Add<int64_t>("norm.num_batches_tracked", "I64", {}, {1})
      .Add("mix.weight", {16, 16}, 0)
      .Add("mix.bias", {16}, 20)  // tanh of it is 1
      .Add("gain", {1}, value - 0.25F)
      .Add("scale", {}, 1.0F / 16)
      .Text();
}

// The model "tower" of the test repository, in a folder of its own, loaded as the server does it.
class Tower {
 public:
  explicit Tower(const VersionFolder& folder, size_t instances = 1) {
    const std::filesystem::path source =
        std::filesystem::path(AOTI_TEST_REPOSITORY) / "tower" / "1";
    std::filesystem::copy(source, folder.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::skip_existing |
                              std::filesystem::copy_options::create_hard_links);
    model_.name = "tower";
    model_.folder = folder.path().parent_path().string();
    const Json config = {
        {"max_batch_size", 64},
        {"input",
         {{{"name", "history"}, {"data_type", "TYPE_INT64"}, {"dims", {4}}},
          {{"name", "candidates"}, {"data_type", "TYPE_INT64"}, {"dims", {-1}}}}},
        {"output", {{{"name", "scores"}, {"data_type", "TYPE_FP32"}, {"dims", {-1}}}}},
        {"instance_group", {{{"kind", "KIND_CPU"}, {"count", instances}}}},
        {"parameters", {{"threads", {{"string_value", "1"}}}}}};
    model_.config = config.dump();
    EXPECT_EQ(fake::Message(TRITONBACKEND_ModelInitialize(&model_)), "");
    for (size_t i = 0; i < instances; ++i) {
      instances_.push_back(std::make_unique<TRITONBACKEND_ModelInstance>());
      instances_.back()->model = &model_;
      EXPECT_EQ(fake::Message(TRITONBACKEND_ModelInstanceInitialize(instances_.back().get())), "");
    }
  }
  ~Tower() {
    for (const auto& instance : instances_) {
      EXPECT_EQ(fake::Message(TRITONBACKEND_ModelInstanceFinalize(instance.get())), "");
    }
    EXPECT_EQ(fake::Message(TRITONBACKEND_ModelFinalize(&model_)), "");
    EXPECT_EQ(fake::LiveObjects(), 0);
  }

  // The scores of `rows` users and three candidates each.
  std::vector<float> Scores(int64_t rows, size_t index = 0) {
    auto request = fake::NewRequest({"scores"});
    request->Add("history", TRITONSERVER_TYPE_INT64, {rows, 4},
                 std::vector<int64_t>(static_cast<size_t>(rows) * 4, 7));
    request->Add("candidates", TRITONSERVER_TYPE_INT64, {rows, 3},
                 std::vector<int64_t>(static_cast<size_t>(rows) * 3, 99));
    TRITONBACKEND_Request* handle = request.get();
    EXPECT_EQ(
        fake::Message(TRITONBACKEND_ModelInstanceExecute(instances_.at(index).get(), &handle, 1)),
        "");
    return request->Output("scores").Values<float>();
  }

 private:
  TRITONBACKEND_Model model_;
  std::vector<std::unique_ptr<TRITONBACKEND_ModelInstance>> instances_;
};

std::string PackageDigest() {
  const auto manifest = LoadManifest(std::filesystem::path(AOTI_TEST_REPOSITORY) / "tower" / "1");
  return manifest.ok() ? manifest->package_sha256 : manifest.status().message();
}

TEST(WeightsBackend, PushedWeightsAnswer) {
  const VersionFolder folder;
  Tower tower(folder);
  const std::vector<float> own = tower.Scores(2);
  EXPECT_EQ(own.size(), 6u);
  folder.Push(1, TowerWeights(3), PackageDigest());
  EXPECT_EQ(folder.AwaitStatus(1)["state"], "swapped") << folder.ReadStatus();
  EXPECT_THAT(tower.Scores(2), Each(9.0F));
  EXPECT_NE(tower.Scores(2), own);
  std::string spoiled = TowerWeights(5);
  spoiled.pop_back();
  folder.Push(2, spoiled, PackageDigest());
  EXPECT_EQ(folder.AwaitStatus(2)["state"], "refused");
  EXPECT_THAT(tower.Scores(2), Each(9.0F));
  folder.Push(3, TowerWeights(5), PackageDigest());
  EXPECT_EQ(folder.AwaitStatus(3)["state"], "swapped");
  EXPECT_THAT(tower.Scores(2), Each(25.0F));
}

TEST(WeightsBackend, WeightsPushedBeforeTheLoadAnswerFirst) {
  const VersionFolder folder;
  folder.Push(8, TowerWeights(3), PackageDigest());
  Tower tower(folder, 2);
  EXPECT_THAT(tower.Scores(1, 0), Each(9.0F));
  EXPECT_THAT(tower.Scores(1, 1), Each(9.0F));
  EXPECT_EQ(folder.ReadStatus()["version"], 8);
}

// Every answer is of one set of weights, and a set that came is not followed by an older one.
TEST(WeightsBackend, RunsInFlightSeeOneSetEach) {
  constexpr size_t kThreads = 4;
  constexpr int kPushes = 10;
  const VersionFolder folder;
  folder.Push(1, TowerWeights(1), PackageDigest());
  Tower tower(folder, kThreads);
  std::atomic<bool> stop{false};
  std::atomic<int> answers{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      float newest = 0;
      while (!stop) {
        const std::vector<float> scores = tower.Scores(3, i);
        ASSERT_EQ(scores.size(), 9u);
        ASSERT_THAT(scores, Each(scores[0]));
        std::set<float> sets;
        for (int value = 1; value <= kPushes; ++value)
          sets.insert(static_cast<float>(value * value));
        ASSERT_TRUE(sets.contains(scores[0])) << scores[0];
        ASSERT_GE(scores[0], newest);
        newest = scores[0];
        ++answers;
      }
    });
  }
  for (int value = 2; value <= kPushes; ++value) {
    folder.Push(value, TowerWeights(static_cast<float>(value)), PackageDigest());
    EXPECT_EQ(folder.AwaitStatus(value)["state"], "swapped");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(answers, 0);
  for (size_t i = 0; i < kThreads; ++i) EXPECT_THAT(tower.Scores(1, i), Each(100.0F));
}

TEST(WeightsPackage, WhatTorchWouldCorruptMemoryWithIsRefused) {
  const std::filesystem::path folder = std::filesystem::path(AOTI_TEST_REPOSITORY) / "tower" / "1";
  const auto manifest = LoadManifest(folder);
  ASSERT_TRUE(manifest.ok());
  auto package = Package::Load(folder / manifest->package_path, manifest->model_name, Place{}, 2);
  ASSERT_TRUE(package.ok()) << package.status().message();
  EXPECT_EQ((*package)->Swap().message(), "no weights are staged");
  EXPECT_EQ((*package)->weights_generation(), 0u);
  const std::vector<double> values(16, 1.0);
  const auto stage = [&](ConstantSpec spec, size_t bytes) {
    const NewConstant value{&spec, std::as_bytes(std::span(values)).first(bytes)};
    const Status status = (*package)->Stage({&value, 1});
    if (status.ok()) (*package)->Release();
    return status.message();
  };
  const Datatype* const f32 = FindDatatype("float32");
  EXPECT_THAT(stage({"mix.bias", FindDatatype("float64"), {16}, true, {}}, 128),
              AllOf(HasSubstr("'mix.bias'"), HasSubstr("float32 [16]"), HasSubstr("float64 [16]")));
  EXPECT_THAT(stage({"mix.bias", f32, {8}, true, {}}, 32), HasSubstr("float32 [8]"));
  EXPECT_THAT(stage({"mix.bias", f32, {16}, true, {}}, 60), HasSubstr("'mix.bias'"));
  EXPECT_EQ(stage({"nothing", f32, {16}, true, {}}, 64), "the package has no constant 'nothing'");
  EXPECT_EQ(stage({"mix.bias", f32, {16}, true, {}}, 64), "");
}

}  // namespace
}  // namespace aoti
