// Weights of a model that are replaced while it serves.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "constants.h"
#include "manifest.h"
#include "metrics.h"
#include "safetensors.h"
#include "status.h"
#include "weights_files.h"
#include "weights_watcher.h"

namespace aoti {

// Which tensor of a file replaces which constant of a package. Every updatable constant must be
// there under its name or an alias, in its type and shape; under several of them only with the same
// bytes. Tensors that the package does not read may be there; any other is refused. The error names
// what is at fault. The result points into both arguments.
Result<std::vector<NewConstant>> MatchWeights(const Manifest& manifest,
                                              std::span<const SafeTensor> tensors);

// Replaces the constants of all `packages`, or of none: an error leaves every one as it was.
Status ReplaceConstants(std::span<const std::shared_ptr<Replaceable>> packages,
                        std::span<const NewConstant> values);

// The pushes to one version of a model: follows its `weights` folder, gives every package of the
// model what is pushed, and answers in the status file and the metrics.
class Weights {
 public:
  // `name` and `folder` are those of the model and of its version's folder. `manifest` must outlive
  // this.
  Weights(std::string name, const std::filesystem::path& folder, const Manifest& manifest);
  // Waits for an update in progress.
  ~Weights();

  // Gives `package` the weights that its neighbours serve, and every push from now on. The first
  // package gets what is pushed already before this returns; when that is damaged it keeps its own
  // weights, and the status says so. Safe for any number of threads.
  Status Attach(std::shared_ptr<Replaceable> package);

 private:
  using Clock = std::chrono::steady_clock;

  void Follow() noexcept;
  void Refresh();
  Status Apply(const WeightsPointer& pointer,
               std::span<const std::shared_ptr<Replaceable>> packages) const;
  bool MayStillCome(const Status& status);
  void Tell(const WeightsPointer& pointer, const Status& status);

  const std::string name_;
  const std::filesystem::path folder_;
  const Manifest& manifest_;
  std::mutex mutex_;  // of all below but the watcher
  WeightsMetrics metrics_;
  std::vector<std::shared_ptr<Replaceable>> packages_;
  std::optional<WeightsPointer> serving_;           // none: the package's own
  std::optional<std::string> seen_;                 // the pointer that was dealt with last
  std::optional<Clock::time_point> missing_since_;  // when the file of a pointer was first missed
  bool status_fails_ = false;
  std::unique_ptr<WeightsWatcher> watcher_;
};

}  // namespace aoti
