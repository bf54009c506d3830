// Joining requests along axis 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checks.h"
#include "manifest.h"
#include "memory.h"
#include "status.h"
#include "tensor.h"

namespace aoti {

// Requests that share one run of the model.
struct RunPlan {
  std::vector<size_t> members;  // indices of requests, in the order in which they came
  int64_t rows = 1;             // the sum of their rows; 1 where nothing is joined
};

// Splits checked requests (null: one that must not run) into runs. Requests are joined only for
// Wire::kRows, only when every symbol but the batch symbol is equal, and only up to the row limit.
std::vector<RunPlan> PlanRuns(const Manifest& manifest,
                              std::span<const CheckedRequest* const> requests);

// Brings the inputs of one run together. Belongs to one thread at a time.
class Gatherer {
 public:
  // `place` is where the model takes inputs without a copy. `manifest` must outlive this.
  Gatherer(const Manifest& manifest, Place place);

  // The inputs of a run of `requests`, in the manifest's order: the request's own memory where one
  // aligned buffer holds the whole input, else a joined copy. Valid until the next call, and no
  // longer than the requests.
  Result<std::span<const TensorRef>> Gather(std::span<const CheckedRequest* const> requests,
                                            int64_t rows);

 private:
  Status GatherInput(size_t index, std::span<const CheckedRequest* const> requests);

  const Manifest& manifest_;
  const Place place_;
  std::vector<ScratchBuffer> scratch_;        // one an input
  std::vector<std::vector<int64_t>> shapes_;  // one an input
  std::vector<TensorRef> tensors_;
};

}  // namespace aoti
