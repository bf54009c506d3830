#include <gmock/gmock.h>

#include <cstring>
#include <stdexcept>

#include "fake_server.h"
#include "plain_executor.h"
#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kPoison = 1000;

// scores = float(ids) + 1, or what a test makes of it; throws at an id of kPoison.
class FakeRunner final : public Runner {
 public:
  Place place() const override { return {}; }

  Result<std::vector<OutputTensor>> Run(std::span<const TensorRef> inputs) override {
    ++runs;
    auto memory = std::make_shared<std::vector<float>>();
    const auto& shape = inputs[0].shape;
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
      int64_t id = 0;
      std::memcpy(&id, static_cast<const int64_t*>(inputs[0].data) + i, sizeof(id));
      if (id == kPoison) throw std::runtime_error("index out of bounds");
      memory->push_back(static_cast<float>(id + 1));
    }
    OutputTensor output;
    output.data = reinterpret_cast<const std::byte*>(memory->data());
    output.datatype = FindDatatype(dtype);
    output.shape.assign(shape.begin(), shape.end());
    output.shape[0] += more_rows;
    output.bytes = memory->size() * sizeof(float);
    output.owner = std::move(memory);
    std::vector<OutputTensor> outputs(outputs_count, output);
    return outputs;
  }

  int runs = 0;
  int64_t more_rows = 0;
  size_t outputs_count = 1;
  const char* dtype = "float32";
};

class PlainExecution : public ::testing::Test {
 protected:
  TRITONBACKEND_Request& Add(int64_t b, int64_t n, int64_t from) {
    auto request = fake::NewRequest({"scores"});
    std::vector<int64_t> ids(static_cast<size_t>(b * n));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = from + static_cast<int64_t>(i);
    request->Add("ids", TRITONSERVER_TYPE_INT64, {b, n}, ids);
    request->Add("lengths", TRITONSERVER_TYPE_INT64, {b},
                 std::vector<int64_t>(static_cast<size_t>(b)));
    requests_.push_back(std::move(request));
    return *requests_.back();
  }

  void Execute() {
    {
      std::vector<Request> owned;
      for (const auto& request : requests_) owned.emplace_back(request.get(), statistics_);
      executor_.Execute(owned);
    }
    for (const auto& request : requests_) {
      EXPECT_TRUE(request->released);
      EXPECT_EQ(request->reported_success, request->Error().empty() ? 1 : 0);
      EXPECT_EQ(request->reported_failure, request->Error().empty() ? 0 : 1);
    }
    EXPECT_EQ(fake::LiveObjects(), 0);
  }

  Manifest manifest_ = Parsed(ManifestJson());
  TRITONBACKEND_ModelInstance instance_;
  Statistics statistics_{&instance_};
  std::shared_ptr<FakeRunner> runner_ = std::make_shared<FakeRunner>();
  PlainExecutor executor_{"ranker", manifest_, runner_, statistics_};
  std::vector<std::unique_ptr<TRITONBACKEND_Request>> requests_;
};

TEST_F(PlainExecution, CutsEachRequestsOwnRows) {
  Add(1, 2, 10);
  Add(3, 2, 20);
  Add(2, 2, 30);
  Execute();
  EXPECT_EQ(runner_->runs, 1);
  EXPECT_THAT(requests_[0]->Output("scores").Values<float>(), ElementsAre(11, 12));
  EXPECT_THAT(requests_[0]->Output("scores").shape, ElementsAre(1, 2));
  EXPECT_THAT(requests_[1]->Output("scores").Values<float>(), ElementsAre(21, 22, 23, 24, 25, 26));
  EXPECT_THAT(requests_[1]->Output("scores").shape, ElementsAre(3, 2));
  EXPECT_THAT(requests_[2]->Output("scores").Values<float>(), ElementsAre(31, 32, 33, 34));
  ASSERT_EQ(instance_.runs.size(), 1u);
  EXPECT_EQ(instance_.runs[0].rows, 6u);
}

TEST_F(PlainExecution, ABadRequestIsAnsweredAlone) {
  Add(1, 2, 10);
  Add(2, 1, 20);  // n is too small
  Add(2, 2, 30);
  Execute();
  EXPECT_EQ(requests_[1]->ErrorCode(), TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_THAT(requests_[1]->Error(), HasSubstr("ranker: input 'ids'"));
  EXPECT_THAT(requests_[0]->Output("scores").Values<float>(), ElementsAre(11, 12));
  EXPECT_THAT(requests_[2]->Output("scores").Values<float>(), ElementsAre(31, 32, 33, 34));
  ASSERT_EQ(instance_.runs.size(), 1u);
  EXPECT_EQ(instance_.runs[0].rows, 3u);
}

TEST_F(PlainExecution, ACancelledRequestIsAnsweredAsCancelled) {
  Add(1, 2, 10).cancelled = true;
  Execute();
  EXPECT_EQ(requests_[0]->ErrorCode(), TRITONSERVER_ERROR_CANCELLED);
  EXPECT_EQ(runner_->runs, 0);
  EXPECT_TRUE(instance_.runs.empty());
}

TEST_F(PlainExecution, MixedSizesRunApart) {
  Add(1, 2, 10);
  Add(1, 3, 20);
  Add(1, 2, 30);
  Execute();
  EXPECT_EQ(runner_->runs, 2);
  EXPECT_THAT(requests_[1]->Output("scores").Values<float>(), ElementsAre(21, 22, 23));
  EXPECT_THAT(requests_[2]->Output("scores").Values<float>(), ElementsAre(31, 32));
  ASSERT_EQ(instance_.runs.size(), 2u);
  EXPECT_EQ(instance_.runs[0].rows, 2u);
  EXPECT_EQ(instance_.runs[1].rows, 1u);
}

TEST_F(PlainExecution, ARequestThatMakesTheModelThrowFailsAlone) {
  Add(1, 2, 10);
  Add(1, 3, 20);
  Add(1, 2, kPoison - 1);
  Add(2, 2, 30);
  Execute();
  EXPECT_EQ(requests_[2]->ErrorCode(), TRITONSERVER_ERROR_INTERNAL);
  EXPECT_EQ(requests_[2]->Error(), "ranker: index out of bounds");
  EXPECT_THAT(requests_[0]->Output("scores").Values<float>(), ElementsAre(11, 12));
  EXPECT_THAT(requests_[1]->Output("scores").Values<float>(), ElementsAre(21, 22, 23));
  EXPECT_THAT(requests_[3]->Output("scores").Values<float>(), ElementsAre(31, 32, 33, 34));
  // The joined run of three, these three alone, and the one of another size; the failed ones do not
  // count.
  EXPECT_EQ(runner_->runs, 5);
  ASSERT_EQ(instance_.runs.size(), 3u);
  EXPECT_EQ(instance_.runs[0].rows, 1u);
  EXPECT_EQ(instance_.runs[1].rows, 2u);
  EXPECT_EQ(instance_.runs[2].rows, 1u);
  requests_.clear();
  Add(2, 2, 40);
  Execute();
  EXPECT_THAT(requests_[0]->Output("scores").Values<float>(), ElementsAre(41, 42, 43, 44));
}

TEST_F(PlainExecution, OnlyWhatIsAskedForIsSent) {
  Add(1, 2, 10).outputs.clear();
  Execute();
  EXPECT_EQ(requests_[0]->Error(), "");
  EXPECT_TRUE(requests_[0]->response->outputs.empty());
}

TEST_F(PlainExecution, AnUnknownOutputIsRefused) {
  Add(1, 2, 10).outputs = {"scores", "other"};
  Execute();
  EXPECT_EQ(requests_[0]->Error(), "the model has no output 'other'");
}

TEST_F(PlainExecution, OutputsMustBeTheManifests) {
  Add(1, 2, 10);
  runner_->dtype = "int32";
  Execute();
  EXPECT_EQ(requests_[0]->ErrorCode(), TRITONSERVER_ERROR_INTERNAL);
  EXPECT_EQ(requests_[0]->Error(),
            "ranker: output 'scores': the manifest has FP32 [b, n], the package gave INT32 [1, 2]");
  requests_.clear();
  runner_->dtype = "complex64";
  Add(1, 2, 10);
  Execute();
  EXPECT_THAT(requests_[0]->Error(), HasSubstr("the package gave an unknown type [1, 2]"));
  requests_.clear();
  runner_->dtype = "float32";
  runner_->more_rows = 1;
  Add(1, 2, 10);
  Execute();
  EXPECT_THAT(requests_[0]->Error(), HasSubstr("the package gave FP32 [2, 2]"));
  requests_.clear();
  runner_->more_rows = 0;
  runner_->outputs_count = 2;
  Add(1, 2, 10);
  Execute();
  EXPECT_EQ(requests_[0]->Error(), "ranker: the package gave 2 outputs, the manifest has 1");
}

TEST_F(PlainExecution, AnOutputWithoutMemoryFailsItsRequestAlone) {
  Json json = ManifestJson();
  json["outputs"][0]["name"] = "refused";
  const Manifest manifest = Parsed(json);
  PlainExecutor executor("ranker", manifest, runner_, statistics_);
  Add(1, 2, 10).outputs = {"refused"};
  Add(1, 2, 20).outputs.clear();
  {
    std::vector<Request> owned;
    for (const auto& request : requests_) owned.emplace_back(request.get(), statistics_);
    executor.Execute(owned);
  }
  EXPECT_EQ(requests_[0]->Error(), "no memory for it");
  EXPECT_EQ(requests_[0]->reported_failure, 1);
  EXPECT_EQ(requests_[1]->Error(), "");
  EXPECT_EQ(fake::LiveObjects(), 0);
}

TEST_F(PlainExecution, ADroppedRequestIsAnsweredOnce) {
  Add(1, 2, 10);
  {
    const Request dropped(requests_[0].get(), statistics_);
  }
  EXPECT_TRUE(requests_[0]->released);
  EXPECT_EQ(requests_[0]->reported_failure, 1);
  EXPECT_EQ(requests_[0]->Error(), "the request was dropped without an answer");
}

}  // namespace
}  // namespace aoti
