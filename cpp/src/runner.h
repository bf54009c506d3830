// What an executor runs.
#pragma once

#include <span>
#include <vector>

#include "status.h"
#include "tensor.h"

namespace aoti {

// A compiled model on one device. Safe for any number of threads.
class Runner {
 public:
  virtual ~Runner() = default;

  // Runs the model on inputs in the package's order, already checked, and waits for the result. May
  // throw what the model throws; the next run is not affected by that.
  virtual Result<std::vector<OutputTensor>> Run(std::span<const TensorRef> inputs) = 0;

  // Where the model takes its inputs without a copy.
  virtual Place place() const = 0;
};

}  // namespace aoti
