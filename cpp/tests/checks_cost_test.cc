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

// A fitting request of five inputs, checked over and over: no allocation, microseconds a check.
double MicrosecondsEach(const Json& json, TRITONBACKEND_Request& request) {
  const Manifest manifest = Parsed(json);
  const RequestChecker checker("ranker", manifest);
  CheckedRequest checked;
  const Status first = checker.Check(&request, checked);
  EXPECT_TRUE(first.ok()) << first.message();
  constexpr int kRounds = 100000;
  const size_t before = allocations;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    if (!checker.Check(&request, checked).ok()) ADD_FAILURE();
  }
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(allocations, before);
  return taken.count() / kRounds;
}

constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};

Json FiveInputs() {
  Json json = ManifestJson();
  json["inputs"] = Json::array();
  for (const char* name : kNames) {
    json["inputs"].push_back(Tensor(name, "int64", "INT64", {"b", "n"}));
  }
  return json;
}

TEST(ChecksCost, FiveInputs) {
  auto request = fake::NewRequest({"scores"});
  for (const char* name : kNames) {
    request->Add(name, TRITONSERVER_TYPE_INT64, {4, 16}, std::vector<int64_t>(64));
  }
  const double each = MicrosecondsEach(FiveInputs(), *request);
  std::printf("%.3f us a request of five inputs\n", each);
  EXPECT_LT(each, 5.0);
}

TEST(ChecksCost, FiveInputsOfWhichTwoAreLeftOutAndThreeParameters) {
  Json json = FiveInputs();
  json["inputs"][1]["default"] = 1;
  json["inputs"][4]["default"] = 2;
  json["baked"] = {{{"name", "k"}, {"value", 3}}, {{"name", "mode"}, {"value", "fast"}}};
  auto request = fake::NewRequest({"scores"});
  for (const char* name : {"a", "c", "d"}) {
    request->Add(name, TRITONSERVER_TYPE_INT64, {4, 16}, std::vector<int64_t>(64));
  }
  request->parameters = {{"k", int64_t{3}}, {"mode", "fast"}, {"other", true}};
  const double each = MicrosecondsEach(json, *request);
  std::printf("%.3f us a request of three inputs, two defaults and three parameters\n", each);
  EXPECT_LT(each, 5.0);
}

}  // namespace
}  // namespace aoti
