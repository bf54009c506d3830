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

  // A time without runs: those in flight are waited for, new ones wait for the end of this object.
  // New ones wait from the beginning: a lock that readers share would let a steady stream of them
  // keep a writer out for ever.
  class Pause {
   public:
    explicit Pause(RunnerSlots& slots) : slots_(slots) { slots_.Close(); }
    ~Pause() { slots_.Open(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    RunnerSlots& slots_;
  };

  explicit RunnerSlots(size_t count) : count_(count), free_(count) {}

 private:
  void Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return free_ > 0 && !closed_; });
    --free_;
  }

  void Give() {
    bool drained = false;
    {
      const std::lock_guard lock(mutex_);
      ++free_;
      drained = closed_ && free_ == count_;
    }
    if (drained) {
      drained_.notify_one();
    } else {
      changed_.notify_one();
    }
  }

  void Close() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !closed_; });
    closed_ = true;
    drained_.wait(lock, [this] { return free_ == count_; });
  }

  void Open() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = false;
    }
    changed_.notify_all();
  }

  const size_t count_;
  std::mutex mutex_;
  std::condition_variable changed_;  // a runner is free, or the pause is over
  std::condition_variable drained_;  // all runners are free
  size_t free_;
  bool closed_ = false;
};

}  // namespace aoti
