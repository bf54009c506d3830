// What the checks cost on the way of a request that fits: no memory, and little time.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "checks.h"
#include "fake_server.h"
#include "test_manifest.h"

namespace {
thread_local size_t allocations = 0;
}

// Not inlined: the compiler would take malloc and delete, seen side by side, for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace aoti {
namespace {

TEST(ChecksCost, FiveInputs) {
  Json json = ManifestJson();
  json["inputs"] = Json::array();
  auto request = fake::NewRequest({"scores"});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    json["inputs"].push_back(Tensor(name, "int64", "INT64", {"b", "n"}));
    request->Add(name, TRITONSERVER_TYPE_INT64, {4, 16}, std::vector<int64_t>(64));
  }
  const Manifest manifest = Parsed(json);
  const RequestChecker checker("ranker", manifest);
  CheckedRequest checked;
  ASSERT_TRUE(checker.Check(request.get(), checked).ok());
  constexpr int kRounds = 100000;
  const size_t before = allocations;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    if (!checker.Check(request.get(), checked).ok()) FAIL();
  }
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(allocations, before);
  RecordProperty("us_per_request", std::to_string(taken.count() / kRounds));
  std::printf("%.3f us a request of five inputs\n", taken.count() / kRounds);
  EXPECT_LT(taken.count() / kRounds, 5.0);
}

}  // namespace
}  // namespace aoti
