#include "weights_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <utility>

namespace aoti {
namespace {

constexpr int kPeriodMs = 1000;
constexpr uint32_t kChanges = IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr uint32_t kArrivals = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;

int StopSignal() {
  const int signal = ::eventfd(0, EFD_CLOEXEC);
  if (signal < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return signal;
}

}  // namespace

WeightsWatcher::WeightsWatcher(std::filesystem::path folder, std::function<void()> look)
    : folder_(std::move(folder)),
      look_(std::move(look)),
      stop_(StopSignal()),
      notify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
      thread_([this] { Loop(); }) {}

WeightsWatcher::~WeightsWatcher() {
  const uint64_t one = 1;
  // An eventfd that counts nothing yet takes a 1 without fail.
  static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));
  thread_.join();
}

void WeightsWatcher::Loop() {
  for (;;) {
    Arm();
    look_();
    // poll() passes over a descriptor of -1.
    pollfd wakes[] = {{stop_.get(), POLLIN, 0}, {notify_.get(), POLLIN, 0}};
    const int ready = ::poll(wakes, 2, kPeriodMs);
    if (ready > 0 && wakes[0].revents != 0) return;
    if (ready > 0 && wakes[1].revents != 0) Drain();
  }
}

// Watches the folder, or its parent until it is there.
void WeightsWatcher::Arm() {
  if (notify_.get() < 0 || (watch_ >= 0 && !on_parent_)) return;
  const int watch = ::inotify_add_watch(notify_.get(), folder_.c_str(), kChanges | IN_ONLYDIR);
  if (watch >= 0) {
    if (watch_ >= 0) ::inotify_rm_watch(notify_.get(), watch_);
    watch_ = watch;
    on_parent_ = false;
  } else if (watch_ < 0) {
    const std::filesystem::path parent = folder_.parent_path();
    watch_ = ::inotify_add_watch(notify_.get(), parent.c_str(), kArrivals | IN_ONLYDIR);
    on_parent_ = watch_ >= 0;
  }
}

void WeightsWatcher::Drain() {
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(notify_.get(), buffer.data(), buffer.size());
    if (got <= 0) return;  // EAGAIN: that was all
    for (ssize_t at = 0; at < got;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      at += static_cast<ssize_t>(sizeof(event) + event.len);
      constexpr uint32_t kGone = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED;
      if (event.wd != watch_ || (event.mask & kGone) == 0) continue;
      // What is watched is no longer at its path.
      if ((event.mask & IN_MOVE_SELF) != 0) ::inotify_rm_watch(notify_.get(), watch_);
      watch_ = -1;
    }
  }
}

}  // namespace aoti
