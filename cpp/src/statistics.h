// What the server counts about requests and runs.
#pragma once

#include <cstdint>

#include "triton_abi.h"

namespace aoti {

// The moments of a run, in the server's clock.
struct Timeline {
  uint64_t start_ns = 0;          // the run's requests are taken up
  uint64_t compute_start_ns = 0;  // inputs are gathered
  uint64_t compute_end_ns = 0;    // outputs are there
  uint64_t end_ns = 0;            // responses are sent

  // A run that did not come about: every moment is now.
  static Timeline Now();
};

// Nanoseconds of the clock that the server uses too.
uint64_t NowNs();

// Reports for one instance of a model. A report that fails is logged.
class Statistics {
 public:
  explicit Statistics(TRITONBACKEND_ModelInstance* instance) : instance_(instance) {}

  // Once for each request, before it is released.
  void ReportRequest(TRITONBACKEND_Request* request, bool success,
                     const Timeline& times) const noexcept;
  // Once for each run of the model that gave a result.
  void ReportRun(uint64_t rows, const Timeline& times) const noexcept;

 private:
  TRITONBACKEND_ModelInstance* instance_;
};

}  // namespace aoti
