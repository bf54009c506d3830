#include "checks.h"

#include <gmock/gmock.h>

#include "fake_server.h"
#include "test_manifest.h"

namespace aoti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Checks : public ::testing::Test {
 protected:
  // What the check says about `request`, "" when it may run.
  std::string Check(TRITONBACKEND_Request& request) {
    const Status status = checker_.Check(&request, checked_);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
    EXPECT_EQ(fake::LiveObjects(), 0);
    return status.message();
  }

  static void Ids(TRITONBACKEND_Request& request, int64_t b, int64_t n) {
    request.Add<int64_t>("ids", TRITONSERVER_TYPE_INT64, {b, n},
                         std::vector<int64_t>(static_cast<size_t>(b * n)));
  }

  static void Lengths(TRITONBACKEND_Request& request, int64_t b) {
    request.Add<int64_t>("lengths", TRITONSERVER_TYPE_INT64, {b},
                         std::vector<int64_t>(static_cast<size_t>(b)));
  }

  Manifest manifest_ = Parsed(ManifestJson());
  RequestChecker checker_{"ranker", manifest_};
  CheckedRequest checked_;
};

TEST_F(Checks, AFittingRequestBindsItsSizes) {
  TRITONBACKEND_Request request;
  Lengths(request, 3);
  Ids(request, 3, 5);
  EXPECT_EQ(Check(request), "");
  EXPECT_THAT(checked_.symbols, ElementsAre(3, 5));
  EXPECT_THAT(checked_.inputs[0].shape, ElementsAre(3, 5));
  EXPECT_EQ(checked_.inputs[0].bytes, 120u);
  EXPECT_EQ(checked_.inputs[1].bytes, 24u);
}

TEST_F(Checks, BothEndsOfARangeAreInIt) {
  for (const auto& [b, n] : {std::pair<int64_t, int64_t>{1, 2}, {8, 64}}) {
    TRITONBACKEND_Request request;
    Ids(request, b, n);
    Lengths(request, b);
    EXPECT_EQ(Check(request), "");
  }
}

TEST_F(Checks, AMissingInputIsNamed) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  EXPECT_EQ(Check(request), "ranker: input 'lengths' is missing, expected INT64 [b]");
}

TEST_F(Checks, AnInputInAnothersPlaceIsNamed) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  request.Add<int64_t>("length", TRITONSERVER_TYPE_INT64, {3}, {1, 2, 3});
  EXPECT_EQ(Check(request), "ranker: unknown input 'length', expected 'ids', 'lengths'");
}

TEST_F(Checks, AnInputTooManyIsNamed) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  Lengths(request, 3);
  request.Add<int64_t>("extra", TRITONSERVER_TYPE_INT64, {3}, {1, 2, 3});
  EXPECT_EQ(Check(request), "ranker: unknown input 'extra', expected 'ids', 'lengths'");
}

TEST_F(Checks, AnInputGivenTwiceIsNamed) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  Lengths(request, 3);
  Lengths(request, 3);
  EXPECT_EQ(Check(request), "ranker: input 'lengths' is given twice");
}

TEST_F(Checks, TheDatatypeMustFit) {
  TRITONBACKEND_Request request;
  Lengths(request, 3);
  request.Add<float>("ids", TRITONSERVER_TYPE_FP32, {3, 2}, std::vector<float>(6));
  EXPECT_EQ(Check(request), "ranker: input 'ids' expected datatype INT64, got FP32");
}

TEST_F(Checks, TheRankMustFit) {
  TRITONBACKEND_Request request;
  Lengths(request, 3);
  request.Add<int64_t>("ids", TRITONSERVER_TYPE_INT64, {3}, {1, 2, 3});
  EXPECT_EQ(Check(request), "ranker: input 'ids' expected shape [b, n], got [3]");
}

TEST_F(Checks, SizesMustBeInRange) {
  for (const int64_t n : {0, 1, 65, 1000}) {
    TRITONBACKEND_Request request;
    Ids(request, 3, n);
    Lengths(request, 3);
    EXPECT_EQ(Check(request), "ranker: input 'ids' expected shape [b, n], got [3, " +
                                  std::to_string(n) + "]: dimension 1 (n) must be in 2..64, not " +
                                  std::to_string(n));
  }
}

TEST_F(Checks, NegativeSizesAreRefused) {
  TRITONBACKEND_Request request;
  Lengths(request, 3);
  request.Add<int64_t>("ids", TRITONSERVER_TYPE_INT64, {-3, -5}, std::vector<int64_t>(15));
  EXPECT_THAT(Check(request), HasSubstr("dimension 0 (b) must be in 1..8, not -3"));
}

TEST_F(Checks, ASymbolHasOneSizeInARequest) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  Lengths(request, 4);
  EXPECT_EQ(Check(request),
            "ranker: input 'lengths' expected shape [b], got [4]: dimension 0 (b) is 4, but input "
            "'ids' has b = 3");
}

TEST_F(Checks, AnotherSizeOutOfRangeStillNamesTheOtherInput) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  Lengths(request, 9);
  EXPECT_THAT(Check(request), HasSubstr("dimension 0 (b) is 9, but input 'ids' has b = 3"));
}

TEST_F(Checks, TheBytesMustBeThoseOfTheShape) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{119}, uint64_t{121}, UINT64_MAX}) {
    TRITONBACKEND_Request request;
    Ids(request, 3, 5);
    Lengths(request, 3);
    request.inputs[0]->bytes = bytes;
    EXPECT_EQ(Check(request), "ranker: input 'ids' shape [3, 5] of INT64 takes 120 bytes, got " +
                                  std::to_string(bytes));
  }
}

TEST_F(Checks, ACancelledRequestDoesNotRun) {
  TRITONBACKEND_Request request;
  Ids(request, 3, 5);
  Lengths(request, 3);
  request.cancelled = true;
  const Status status = checker_.Check(&request, checked_);
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "ranker: the request was cancelled");
}

// A model of one input x [n, 4] with a range that would let anything pass, and a 0-d input.
class SingleChecks : public ::testing::Test {
 protected:
  SingleChecks() {
    Json json = ManifestJson();
    json["wire"] = "single";
    json["symbols"] = {{{"name", "n"}, {"min", 0}, {"max", INT64_MAX}}};
    json["batching"] = {{"proved", false}, {"symbol", nullptr}, {"max", 0}, {"reason", "no rows"}};
    json["inputs"] = {Tensor("x", "float32", "FP32", {"n", 4}),
                      Tensor("factor", "float32", "FP32", Json::array())};
    json["outputs"] = {Tensor("out", "float32", "FP32", {"n", 4})};
    manifest_ = Parsed(json);
  }

  Status Check(std::vector<int64_t> shape, uint64_t bytes, std::vector<int64_t> factor = {1}) {
    TRITONBACKEND_Request request;
    request.Add<float>("x", TRITONSERVER_TYPE_FP32, std::move(shape), std::vector<float>(4));
    request.Add<float>("factor", TRITONSERVER_TYPE_FP32, std::move(factor), {2});
    request.inputs[0]->bytes = bytes;
    return checker_.Check(&request, checked_);
  }

  Manifest manifest_;
  RequestChecker checker_{"scale", manifest_};
  CheckedRequest checked_;
};

TEST_F(SingleChecks, ZeroDimensionsGoAsOneOfOne) {
  EXPECT_TRUE(Check({1, 4}, 16).ok());
  EXPECT_EQ(checked_.inputs[1].shape.size(), 0u);
  EXPECT_TRUE(Check({1, 4}, 16, {}).ok());
  EXPECT_THAT(Check({1, 4}, 16, {2}).message(), HasSubstr("'factor' expected shape [], got [2]"));
  EXPECT_THAT(Check({1, 4}, 16, {1, 1}).message(),
              HasSubstr("'factor' expected shape [], got [1, 1]"));
}

TEST_F(SingleChecks, SizesThatOverflowAreRefused) {
  EXPECT_EQ(
      Check({int64_t{1} << 62, 4}, 0).message(),
      "scale: input 'x' shape [4611686018427387904, 4] of FP32 is larger than any memory, got 0 "
      "bytes");
  EXPECT_THAT(Check({INT64_MAX, 4}, UINT64_MAX).message(), HasSubstr("larger than any memory"));
}

TEST_F(SingleChecks, NoRowsTakeNoBytes) {
  EXPECT_TRUE(Check({0, 4}, 0).ok());
  EXPECT_EQ(Check({0, 4}, 16).message(),
            "scale: input 'x' shape [0, 4] of FP32 takes 0 bytes, got 16");
}

TEST_F(SingleChecks, FixedSizesMustBeThere) {
  EXPECT_EQ(Check({1, 3}, 12).message(),
            "scale: input 'x' expected shape [n, 4], got [1, 3]: dimension 1 must be 4, not 3");
}

}  // namespace
}  // namespace aoti
