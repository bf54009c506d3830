// A compiled model, loaded by torch. Only this and constant_buffers.h know torch's loader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "constants.h"
#include "runner.h"

namespace aoti {

// A `.pt2` file or its unpacked folder, loaded on one device with a fixed number of runners.
class Package final : public Runner, public Replaceable {
 public:
  // `place` says on which device. One load at a time runs in the process. The error carries torch's
  // words.
  static Result<std::shared_ptr<Package>> Load(const std::filesystem::path& path,
                                               const std::string& model_name, Place place,
                                               size_t runners);
  ~Package() override;

  // Waits for a free runner first.
  Result<std::vector<OutputTensor>> Run(std::span<const TensorRef> inputs) override;
  Place place() const override;

  Status Stage(std::span<const NewConstant> values) override;
  Status Swap() override;
  void Release() noexcept override;

  // How often the weights were replaced. What a run computed is of no use to a run of a later
  // generation.
  uint64_t weights_generation() const;

 private:
  struct Loaded;
  explicit Package(std::unique_ptr<Loaded> loaded);
  std::unique_ptr<Loaded> loaded_;
};

// The version of the torch that runs, as its wheel calls it without the build's suffix: "2.13.0".
std::string RunningTorch();

}  // namespace aoti
