#include "weights.h"

#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>

#include "fake_server.h"
#include "test_manifest.h"
#include "weights_files_for_tests.h"

namespace aoti {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kPackage(64, 'a');

// Constants w [2] (also called tied), n int64 [], and fixed, which stays; batches is unread.
Manifest Updatable() {
  Json json = ManifestJson();
  json["constants"] = Json::parse(R"([
    {"name": "w", "dtype": "float32", "shape": [2], "updatable": true, "aliases": ["tied"]},
    {"name": "n", "dtype": "int64", "shape": [], "updatable": true},
    {"name": "fixed", "dtype": "float32", "shape": [1], "updatable": false}])");
  json["unread"] = {"batches"};
  return Parsed(json);
}

FileBuilder Builder(float w = 1) {
  FileBuilder builder;
  builder.Add("w", {2}, w).Add<int64_t>("n", "I64", {}, {3});
  return builder;
}

// What MatchWeights says about a file: its error, or "".
std::string Match(const FileBuilder& builder) {
  const Manifest manifest = Updatable();
  const std::string file = builder.Text();
  const auto tensors = ReadSafetensors(Bytes(file));
  EXPECT_TRUE(tensors.ok()) << tensors.status().message();
  const auto values = MatchWeights(manifest, *tensors);
  return values.ok() ? "" : values.status().message();
}

TEST(WeightsMatch, NamesAndAliases) {
  EXPECT_EQ(Match(Builder()), "");
  EXPECT_EQ(Match(Builder().Add<int64_t>("batches", "I64", {}, {9})), "");
  EXPECT_EQ(Match(FileBuilder().Add("tied", {2}, 1).Add<int64_t>("n", "I64", {}, {3})), "");
  EXPECT_EQ(Match(Builder(1).Add("tied", {2}, 1)), "");
  EXPECT_EQ(Match(Builder(1).Add("tied", {2}, 2)),
            "tensors 'w' and 'tied' are one tensor in the model and differ in the file");
}

TEST(WeightsMatch, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(Match(FileBuilder()), "the file lacks 'w', 'n'");
  EXPECT_EQ(Match(Builder().Add("x", {1}, 1).Add("fixed", {1}, 1)),
            "the file holds 'x', 'fixed', which the package has no updatable constant for");
  EXPECT_EQ(Match(FileBuilder().Add("w", {1, 2}, 1).Add<int64_t>("n", "I64", {}, {3})),
            "tensor 'w': the package has float32 [2], the file float32 [1, 2]");
  EXPECT_EQ(Match(FileBuilder().Add("w", {2}, 1).Add("n", {}, 1)),
            "tensor 'n': the package has int64 [], the file float32 []");
}

// Counts what is done to it; serves the value of w.
class FakePackage final : public Replaceable {
 public:
  Status Stage(std::span<const NewConstant> values) override {
    EXPECT_FALSE(staged);
    if (fails_to_stage) return Internal("no memory");
    for (const NewConstant& value : values) {
      if (value.spec->name == "w") std::memcpy(&next, value.data.data(), sizeof(next));
    }
    staged = true;
    return {};
  }
  Status Swap() override {
    EXPECT_TRUE(staged);
    if (fails_to_swap) return Internal("no swap");
    std::swap(next, w);
    return {};
  }
  void Release() noexcept override { staged = false; }

  bool fails_to_stage = false;
  bool fails_to_swap = false;
  bool staged = false;
  float w = 0;
  float next = 0;
};

std::vector<std::shared_ptr<Replaceable>> All(const std::vector<std::shared_ptr<FakePackage>>& p) {
  return {p.begin(), p.end()};
}

TEST(ReplaceConstants, AllPackagesOrNone) {
  const Manifest manifest = Updatable();
  const std::string file = Builder(5).Text();
  const auto tensors = ReadSafetensors(Bytes(file));
  const auto values = MatchWeights(manifest, *tensors);
  const std::vector packages{std::make_shared<FakePackage>(), std::make_shared<FakePackage>(),
                             std::make_shared<FakePackage>()};
  const auto served = [&packages] {
    std::vector<float> all;
    for (const auto& package : packages) {
      EXPECT_FALSE(package->staged);
      all.push_back(package->w);
    }
    return all;
  };
  packages[1]->fails_to_stage = true;
  EXPECT_EQ(ReplaceConstants(All(packages), *values).message(), "no memory");
  EXPECT_THAT(served(), ElementsAre(0, 0, 0));
  packages[1]->fails_to_stage = false;
  packages[2]->fails_to_swap = true;
  EXPECT_EQ(ReplaceConstants(All(packages), *values).message(), "no swap");
  EXPECT_THAT(served(), ElementsAre(0, 0, 0));
  packages[2]->fails_to_swap = false;
  EXPECT_TRUE(ReplaceConstants(All(packages), *values).ok());
  EXPECT_THAT(served(), ElementsAre(5, 5, 5));
}

TEST(WeightsPointer, FieldsAreChecked) {
  const Json good = {{"schema", 1},
                     {"version", 3},
                     {"sha256", std::string(64, 'b')},
                     {"bytes", 10},
                     {"package_sha256", kPackage}};
  const auto pointer = ParsePointer(good.dump());
  ASSERT_TRUE(pointer.ok()) << pointer.status().message();
  EXPECT_EQ(pointer->version, 3);
  EXPECT_EQ(pointer->FileName(), std::string(64, 'b') + ".safetensors");
  const std::pair<const char*, Json> wrong[] = {
      {"schema", 2}, {"version", 0}, {"version", "1"},           {"sha256", "../../etc/passwd"},
      {"bytes", -1}, {"bytes", 1.5}, {"package_sha256", nullptr}};
  for (const auto& [field, value] : wrong) {
    Json bad = good;
    bad[field] = value;
    const auto parsed = ParsePointer(bad.dump());
    EXPECT_FALSE(parsed.ok());
    EXPECT_THAT(parsed.status().message(), HasSubstr(std::string("current.json.") + field));
  }
  EXPECT_THAT(ParsePointer("{").status().message(), HasSubstr("current.json: not JSON"));
}

class Pushes : public ::testing::Test {
 protected:
  Pushes() { StartMetrics(); }
  ~Pushes() override {
    weights_.reset();
    StopMetrics();
    EXPECT_EQ(fake::LiveObjects(), 0);
  }

  void Load() {
    weights_ = std::make_unique<Weights>("tower", folder_.path(), manifest_);
    package_ = std::make_shared<FakePackage>();
    const Status status = weights_->Attach(package_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // The value that the package serves after the answer to `version`.
  Json Answer(int64_t version) { return folder_.AwaitStatus(version); }

  const Manifest manifest_ = Updatable();
  const VersionFolder folder_;
  std::unique_ptr<Weights> weights_;
  std::shared_ptr<FakePackage> package_;
};

TEST_F(Pushes, SwapAndAreTold) {
  Load();
  EXPECT_TRUE(folder_.ReadStatus().is_null());
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_version{tower,1}", 0)));
  folder_.Push(1, Builder(5).Text(), kPackage);
  const Json status = Answer(1);
  EXPECT_EQ(status["state"], "swapped");
  EXPECT_EQ(status["serving"], 1);
  EXPECT_EQ(status["sha256"], Sha256Of(Bytes(Builder(5).Text())));
  EXPECT_EQ(package_->w, 5);
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_version{tower,1}", 1)));
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_push_failures{tower,1}", 0)));
}

TEST_F(Pushes, ARefusedOneChangesNothing) {
  Load();
  folder_.Push(1, Builder(5).Text(), kPackage);
  Answer(1);
  folder_.Push(2, FileBuilder().Add("w", {2}, 9).Text(), kPackage);
  Json status = Answer(2);
  EXPECT_EQ(status["state"], "refused");
  EXPECT_EQ(status["message"], "the file lacks 'n'");
  EXPECT_EQ(status["serving"], 1);
  folder_.Push(3, Builder(6).Text(), std::string(64, 'c'));
  EXPECT_THAT(std::string(Answer(3)["message"]), HasSubstr("for another package"));
  folder_.Push(4, "no safetensors", kPackage);
  EXPECT_THAT(std::string(Answer(4)["message"]), HasSubstr("no safetensors file, or cut off"));
  // The content is not what the pointer says.
  const std::string file = Builder(7).Text();
  std::ofstream(folder_.weights() / (std::string(64, 'd') + ".safetensors")) << file;
  folder_.Point({{"schema", 1},
                 {"version", 5},
                 {"sha256", std::string(64, 'd')},
                 {"bytes", file.size()},
                 {"package_sha256", kPackage}});
  EXPECT_THAT(std::string(Answer(5)["message"]), HasSubstr("its content has the sha256"));
  EXPECT_EQ(package_->w, 5);
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_version{tower,1}", 1)));
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_push_failures{tower,1}", 4)));
}

TEST_F(Pushes, AMissingFileIsWaitedForAndThenRefused) {
  Load();
  const std::string file = Builder(5).Text();
  const std::string digest = Sha256Of(Bytes(file));
  folder_.Point({{"schema", 1},
                 {"version", 1},
                 {"sha256", digest},
                 {"bytes", file.size()},
                 {"package_sha256", kPackage}});
  const Json status = Answer(1);
  EXPECT_EQ(status["state"], "refused");
  EXPECT_THAT(std::string(status["message"]), HasSubstr(digest + ".safetensors: cannot be opened"));
}

TEST_F(Pushes, ServeFromTheStart) {
  folder_.Push(4, Builder(5).Text(), kPackage);
  Load();
  EXPECT_EQ(package_->w, 5);
  EXPECT_EQ(folder_.ReadStatus()["version"], 4);
  // A neighbour on another device serves the same.
  const auto neighbour = std::make_shared<FakePackage>();
  EXPECT_TRUE(weights_->Attach(neighbour).ok());
  EXPECT_EQ(neighbour->w, 5);
  folder_.Push(5, Builder(6).Text(), kPackage);
  Answer(5);
  EXPECT_EQ(package_->w, 6);
  EXPECT_EQ(neighbour->w, 6);
}

TEST_F(Pushes, ACorruptPointerKeepsThePackagesOwn) {
  std::ofstream(folder_.weights() / kPointerFile) << "{\"schema\": 1, \"vers";
  Load();
  EXPECT_EQ(package_->w, 0);
  const Json status = folder_.ReadStatus();
  EXPECT_EQ(status["state"], "refused");
  EXPECT_EQ(status["version"], 0);
  EXPECT_THAT(std::string(status["message"]), HasSubstr("current.json: not JSON"));
  folder_.Push(1, Builder(5).Text(), kPackage);
  EXPECT_EQ(Answer(1)["state"], "swapped");
}

TEST_F(Pushes, APointerPutBackIsNoPush) {
  Load();
  folder_.Push(1, Builder(5).Text(), kPackage);
  Answer(1);
  folder_.Push(2, Builder(6).Add("x", {1}, 1).Text(), kPackage);
  Answer(2);
  folder_.Push(1, Builder(5).Text(), kPackage);
  folder_.Push(3, Builder(7).Text(), kPackage);
  EXPECT_EQ(Answer(3)["state"], "swapped");
  EXPECT_EQ(package_->w, 7);
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_push_failures{tower,1}", 1)));
}

TEST_F(Pushes, WithoutAStatusFileTheMetricTells) {
  std::filesystem::create_directory(folder_.weights() / kStatusFile);  // which cannot be replaced
  fake::TakeLog();
  folder_.Push(1, Builder(5).Text(), kPackage);
  Load();
  EXPECT_EQ(package_->w, 5);
  EXPECT_THAT(fake::Metrics(), Contains(Pair("aoti_weights_version{tower,1}", 1)));
  EXPECT_THAT(fake::TakeLog(), Contains(HasSubstr("the metric aoti_weights_version tells")));
}

TEST(WeightsMetrics, AServerWithoutMetricsIsNoError) {
  fake::TakeLog();
  fake::SetMetrics(false);
  StartMetrics();
  fake::SetMetrics(true);
  EXPECT_THAT(fake::TakeLog(), Contains("no metrics about weights: metrics not supported"));
  WeightsMetrics metrics("m", "1");
  metrics.SetVersion(3);
  metrics.CountFailure();
  EXPECT_TRUE(fake::Metrics().empty());
  StopMetrics();
}

// Waits until a watcher has looked again `times`.
class Looks {
 public:
  void operator()() {
    {
      const std::lock_guard lock(mutex_);
      ++count_;
    }
    changed_.notify_all();
  }
  bool Await(int times, std::chrono::milliseconds limit = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    const int from = count_;
    return changed_.wait_for(lock, limit, [&] { return count_ >= from + times; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

TEST(WeightsWatcher, LooksWithoutAFolderAndAfterItCame) {
  const VersionFolder folder;
  std::filesystem::remove(folder.weights());
  Looks looks;
  const WeightsWatcher watcher(folder.weights(), [&looks] { looks(); });
  EXPECT_TRUE(looks.Await(1));
  std::filesystem::create_directory(folder.weights());
  EXPECT_TRUE(looks.Await(1));
  std::filesystem::remove(folder.weights());
  std::filesystem::create_directory(folder.weights());
  EXPECT_TRUE(looks.Await(2));
}

}  // namespace
}  // namespace aoti
