// Who may use one of a package's runners.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace aoti {

// A counting semaphore. The package itself must never see more callers than it has runners: a
// caller that waits inside it can be left waiting when another one's run throws.
class RunnerSlots {
 public:
  // One runner, held for the life of this object.
  class Slot {
   public:
    explicit Slot(RunnerSlots& slots) : slots_(slots) { slots_.Take(); }
    ~Slot() { slots_.Give(); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    RunnerSlots& slots_;
  };

  explicit RunnerSlots(size_t count) : free_(count) {}

 private:
  void Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return free_ > 0; });
    --free_;
  }

  void Give() {
    {
      const std::lock_guard lock(mutex_);
      ++free_;
    }
    changed_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t free_;
};

}  // namespace aoti
