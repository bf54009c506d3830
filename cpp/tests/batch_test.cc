#include "batch.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "fake_server.h"
#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Counted(size_t count, int64_t from) {
  std::vector<int64_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

std::vector<int64_t> Values(const TensorRef& tensor) {
  const int64_t count =
      std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::memcpy(values.data(), tensor.data, values.size() * sizeof(int64_t));
  return values;
}

class Batches : public ::testing::Test {
 protected:
  // A request of b rows of n ids that count from `from`, in buffers of `split` ids.
  const CheckedRequest* Add(int64_t b, int64_t n, int64_t from = 0, std::vector<size_t> split = {},
                            size_t misalign = 0) {
    auto request = std::make_unique<TRITONBACKEND_Request>();
    request->Add("ids", TRITONSERVER_TYPE_INT64, {b, n}, Counted(static_cast<size_t>(b * n), from),
                 std::move(split), misalign);
    request->Add("lengths", TRITONSERVER_TYPE_INT64, {b}, Counted(static_cast<size_t>(b), from));
    requests_.push_back(std::move(request));
    checked_.push_back(std::make_unique<CheckedRequest>());
    const Status status = checker_.Check(requests_.back().get(), *checked_.back());
    EXPECT_TRUE(status.ok()) << status.message();
    pointers_.push_back(checked_.back().get());
    return pointers_.back();
  }

  const void* Address(size_t request, size_t input) const {
    return requests_[request]->inputs[input]->buffers[0].data();
  }

  Manifest manifest_ = Parsed(ManifestJson());
  RequestChecker checker_{"ranker", manifest_};
  Gatherer gatherer_{manifest_, Place{}};
  std::vector<std::unique_ptr<TRITONBACKEND_Request>> requests_;
  std::vector<std::unique_ptr<CheckedRequest>> checked_;
  std::vector<const CheckedRequest*> pointers_;
};

TEST_F(Batches, OneAlignedBufferIsNotCopied) {
  Add(3, 4, 7);
  const auto tensors = gatherer_.Gather(pointers_, 3);
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ((*tensors)[0].data, Address(0, 0));
  EXPECT_EQ((*tensors)[1].data, Address(0, 1));
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(3, 4));
}

TEST_F(Batches, AMisalignedBufferIsCopied) {
  Add(3, 4, 7, {}, 3);
  const auto tensors = gatherer_.Gather(pointers_, 3);
  ASSERT_TRUE(tensors.ok());
  EXPECT_NE((*tensors)[0].data, Address(0, 0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*tensors)[0].data) % ScratchBuffer::kAlignment, 0u);
  EXPECT_EQ(Values((*tensors)[0]), Counted(12, 7));
}

TEST_F(Batches, AMutatedInputIsCopied) {
  manifest_.inputs[0].mutated = true;
  Add(3, 4, 7);
  const auto tensors = gatherer_.Gather(pointers_, 3);
  ASSERT_TRUE(tensors.ok());
  EXPECT_NE((*tensors)[0].data, Address(0, 0));
  EXPECT_EQ((*tensors)[1].data, Address(0, 1));
  EXPECT_EQ(Values((*tensors)[0]), Counted(12, 7));
}

TEST_F(Batches, SeveralBuffersAreJoined) {
  Add(3, 4, 7, {1, 5, 6});
  const auto tensors = gatherer_.Gather(pointers_, 3);
  ASSERT_TRUE(tensors.ok());
  EXPECT_EQ(Values((*tensors)[0]), Counted(12, 7));
}

TEST_F(Batches, RequestsAreJoinedInTheirOrder) {
  Add(1, 2, 100);
  Add(3, 2, 200, {2, 4}, 1);
  Add(2, 2, 300);
  const auto tensors = gatherer_.Gather(pointers_, 6);
  ASSERT_TRUE(tensors.ok());
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(6, 2));
  EXPECT_THAT(Values((*tensors)[0]),
              ElementsAre(100, 101, 200, 201, 202, 203, 204, 205, 300, 301, 302, 303));
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(6));
  EXPECT_THAT(Values((*tensors)[1]), ElementsAre(100, 200, 201, 202, 300, 301));
}

TEST_F(Batches, ScratchIsReused) {
  Add(4, 8);
  Add(4, 8);
  const void* first = (*gatherer_.Gather(pointers_, 8))[0].data;
  pointers_.pop_back();
  Add(1, 8);
  EXPECT_EQ((*gatherer_.Gather(pointers_, 5))[0].data, first);
}

TEST_F(Batches, BuffersThatBelieTheirSumAreAnError) {
  Add(3, 4, 7, {6, 6});
  requests_[0]->inputs[0]->buffers.pop_back();
  checked_[0]->inputs[0].buffers = 1;
  EXPECT_EQ(gatherer_.Gather(pointers_, 3).status().message(),
            "input 'ids' has fewer bytes than the server said");
  requests_[0]->inputs[0]->buffers.push_back(requests_[0]->inputs[0]->buffers[0]);
  requests_[0]->inputs[0]->buffers.push_back(requests_[0]->inputs[0]->buffers[0]);
  checked_[0]->inputs[0].buffers = 3;
  EXPECT_EQ(gatherer_.Gather(pointers_, 3).status().message(),
            "input 'ids' has more bytes than the server said");
}

TEST_F(Batches, EqualShapesShareARun) {
  Add(1, 4);
  Add(2, 4);
  Add(3, 4);
  const auto runs = PlanRuns(manifest_, pointers_);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_THAT(runs[0].members, ElementsAre(0, 1, 2));
  EXPECT_EQ(runs[0].rows, 6);
}

TEST_F(Batches, OtherSizesRunApart) {
  Add(1, 4);
  Add(2, 5);
  Add(3, 4);
  Add(1, 5);
  const auto runs = PlanRuns(manifest_, pointers_);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_THAT(runs[0].members, ElementsAre(0, 2));
  EXPECT_THAT(runs[1].members, ElementsAre(1, 3));
  EXPECT_EQ(runs[1].rows, 3);
}

TEST_F(Batches, TheRowLimitSplits) {
  for (const int64_t b : {5, 4, 3, 4}) Add(b, 4);
  const auto runs = PlanRuns(manifest_, pointers_);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_THAT(runs[0].members, ElementsAre(0, 2));
  EXPECT_EQ(runs[0].rows, 8);
  EXPECT_THAT(runs[1].members, ElementsAre(1, 3));
  EXPECT_EQ(runs[1].rows, 8);
}

TEST_F(Batches, AnsweredRequestsAreLeftOut) {
  Add(1, 4);
  Add(2, 4);
  pointers_[0] = nullptr;
  const auto runs = PlanRuns(manifest_, pointers_);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_THAT(runs[0].members, ElementsAre(1));
}

TEST_F(Batches, SingleJoinsNothing) {
  manifest_.wire = Wire::kSingle;
  Add(1, 4);
  Add(1, 4);
  EXPECT_EQ(PlanRuns(manifest_, pointers_).size(), 2u);
}

}  // namespace
}  // namespace aoti
