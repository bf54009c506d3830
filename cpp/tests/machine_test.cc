// The parts that deal with the machine: cores, threads, features, runners.
#include "machine.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cpu.h"
#include "runner_slots.h"
#include "test_manifest.h"
#include "threads.h"

namespace aoti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Threads, BudgetSharesTheCores) {
  EXPECT_EQ(*ThreadBudget("", 1), UsableCores());
  EXPECT_EQ(*ThreadBudget("", 2 * UsableCores()), 1u);
  EXPECT_EQ(*ThreadBudget("3", 8), 3u);
  EXPECT_EQ(*ThreadBudget("1024", 1), 1024u);
}

TEST(Threads, ABadBudgetNamesTheParameter) {
  for (const char* bad : {"0", "-1", "two", "1.5", " 2", "2 ", "1025", "99999999999999999999"}) {
    const auto threads = ThreadBudget(bad, 1);
    ASSERT_FALSE(threads.ok()) << bad;
    EXPECT_EQ(threads.status().message(),
              std::string("parameter \"threads\": expected a whole number from 1 to 1024, got \"") +
                  bad + "\"");
  }
}

size_t ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// The threads that torch has added to the process after one large sum: those that help the caller.
size_t HelpersOfASum() {
  const size_t before = ThreadsOfThisProcess();
  const at::Tensor numbers = at::ones({1 << 22});
  EXPECT_EQ(at::sum(numbers).item<float>(), static_cast<float>(1 << 22));
  return ThreadsOfThisProcess() - before;
}

TEST(Threads, AThreadComputesWithItsOwnNumber) {
  size_t one = 0;
  size_t three = 0;
  int in_torch = 0;
  int untouched_before = 0;
  int untouched_after = 0;
  std::thread([&] { untouched_before = at::get_num_threads(); }).join();
  std::thread([&] {
    UseThreads(1);
    one = HelpersOfASum();
    UseThreads(3);
    three = HelpersOfASum();
    in_torch = at::get_num_threads();
  }).join();
  std::thread([&] { untouched_after = at::get_num_threads(); }).join();
  EXPECT_EQ(one, 0u);
  EXPECT_EQ(three, 2u);
  EXPECT_EQ(in_torch, 3);
  EXPECT_EQ(untouched_before, untouched_after);
}

TEST(Cpu, NamesWhatIsMissing) {
  const char* info = "processor\t: 0\nflags\t\t: fpu sse avx2 fma\nbugs\t: x\n";
  EXPECT_THAT(MissingFeatures({"avx2", "fma"}, info), IsEmpty());
  EXPECT_THAT(MissingFeatures({"avx2", "avx512f", "avx"}, info), ElementsAre("avx512f", "avx"));
  EXPECT_THAT(MissingFeatures({"asimd"}, "Features\t: fp asimd\n"), IsEmpty());
  EXPECT_THAT(MissingFeatures({"avx2"}, "nothing here"), IsEmpty());
  EXPECT_THAT(MissingFeatures({"no_such_feature"}, ReadCpuInfo()), ElementsAre("no_such_feature"));
}

Machine Here() {
  return {"x86_64", "flags : avx avx2\n", "2.36", "2.13.0"};
}

std::string Told(const Json& target, const Machine& machine) {
  Json json = ManifestJson();
  json["target"].update(target);
  return CheckMachine(Parsed(json), machine).message();
}

TEST(Machine, WhatFitsPasses) {
  EXPECT_EQ(Told({{"cpu_features", {"avx2"}}}, Here()), "");
  EXPECT_EQ(Told({{"glibc", "2.9"}}, Here()), "");
  EXPECT_EQ(Told(Json::object(), {"x86_64", "", "3.0", "2.12.9"}), "");
  EXPECT_EQ(Told(Json::object(), {"x86_64", "", "2.36", "2.14.1"}), "");
}

TEST(Machine, WhatIsMissingIsNamedWithTheMend) {
  EXPECT_EQ(Told({{"arch", "aarch64"}}, Here()),
            "the package was compiled for aarch64, and this machine is x86_64: compile it on a "
            "machine with x86_64");
  EXPECT_EQ(Told({{"cpu_features", {"avx2", "avx512f"}}}, Here()),
            "the package was compiled for a CPU with avx512f, which this one lacks: compile it on "
            "this machine, or for an older target");
  for (const char* glibc : {"2.37", "3.0", "2.100"}) {
    EXPECT_EQ(Told({{"glibc", glibc}}, Here()),
              std::string("the package needs glibc ") + glibc +
                  " or newer, and this machine has 2.36: compile it on a system as old as this "
                  "one, or serve it on a newer one");
  }
  for (const char* torch : {"2.11.0", "2.15.0", "3.13.0", "1.13.0"}) {
    Machine machine = Here();
    machine.torch = torch;
    EXPECT_EQ(Told(Json::object(), machine),
              std::string("the package needs torch 2.12 to 2.14, and this backend runs torch ") +
                  torch +
                  ": compile it with this torch, or build the backend for torch 2.12 to 2.14");
  }
  EXPECT_EQ(Told({{"glibc", "new"}}, Here()),
            "manifest.target.glibc: expected a version such as \"2.13\", got \"new\"");
}

TEST(Machine, ThisOneDescribesItself) {
  const Machine machine = ThisMachine();
  EXPECT_FALSE(machine.arch.empty());
  EXPECT_THAT(machine.glibc, ::testing::MatchesRegex("2\\.[0-9]+.*"));
  EXPECT_THAT(machine.torch, ::testing::MatchesRegex("2\\.[0-9]+\\.[0-9]+.*"));
}

TEST(Machine, AGpuRunsCodeOfItsMajorUpToItsMinor) {
  EXPECT_EQ(CheckGpu("sm_90", {9, 0}).message(), "");
  EXPECT_EQ(CheckGpu("sm_80", {8, 6}).message(), "");
  EXPECT_EQ(CheckGpu("sm_120", {12, 1}).message(), "");
  EXPECT_EQ(CheckGpu("sm_90a", {9, 0}).message(), "");
  EXPECT_EQ(CheckGpu("sm_90", {8, 6}).message(),
            "the package was compiled for sm_90, and this GPU is sm_86: compile it on a machine "
            "with this GPU");
  EXPECT_NE(CheckGpu("sm_86", {8, 0}).message(), "");
  EXPECT_NE(CheckGpu("sm_80", {9, 0}).message(), "");
  EXPECT_NE(CheckGpu("sm_100a", {10, 3}).message(), "");
  for (const char* bad : {"native", "sm_", "sm_9", "sm_90b", "sm_-90", ""}) {
    EXPECT_EQ(
        CheckGpu(bad, {9, 0}).message(),
        std::string("manifest.target.march: expected one such as \"sm_90\", got \"") + bad + "\"");
  }
}

TEST(RunnerSlots, FourCallersShareOneRunner) {
  RunnerSlots slots(1);
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        try {
          const RunnerSlots::Slot slot(slots);
          const int now = ++inside;
          int seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          --inside;
          ++done;
          // A run that throws gives its runner back.
          if (round % 7 == 0) throw std::runtime_error("run");
        } catch (const std::runtime_error&) {
          continue;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(done, 2000);
}

}  // namespace
}  // namespace aoti
