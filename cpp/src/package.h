// A compiled model, loaded by torch. The only file that knows torch's loader.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runner.h"

namespace aoti {

// A `.pt2` file or its unpacked folder, loaded on one device with a fixed number of runners.
class Package final : public Runner {
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

 private:
  struct Loaded;
  explicit Package(std::unique_ptr<Loaded> loaded);
  std::unique_ptr<Loaded> loaded_;
};

// The version of the torch that runs, as its wheel calls it without the build's suffix: "2.13.0".
std::string RunningTorch();

}  // namespace aoti
