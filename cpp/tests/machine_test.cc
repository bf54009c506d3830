// The parts that deal with the machine: cores, threads, features, runners.
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
