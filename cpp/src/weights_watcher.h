// Looks at a folder from a thread of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <thread>

#include "files.h"

namespace aoti {

// Calls a function soon after files in a folder change: at once where the file system tells of
// changes, within a second everywhere (network file systems do not tell of other hosts' changes).
// The folder need not exist, and may be replaced.
class WeightsWatcher {
 public:
  // `look` is called from one thread, more often than the folder changes, and must not throw.
  WeightsWatcher(std::filesystem::path folder, std::function<void()> look);
  // Waits for a call in progress.
  ~WeightsWatcher();
  WeightsWatcher(const WeightsWatcher&) = delete;
  WeightsWatcher& operator=(const WeightsWatcher&) = delete;

 private:
  void Loop();
  void Arm();
  void Drain();

  const std::filesystem::path folder_;
  const std::function<void()> look_;
  const File stop_;    // an eventfd
  const File notify_;  // an inotify; without one, the clock alone
  int watch_ = -1;     // of the folder, or of its parent while it is missing
  bool on_parent_ = false;
  std::thread thread_;
};

}  // namespace aoti
