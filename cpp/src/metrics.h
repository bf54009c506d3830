// What this backend adds to the server's metrics.
#pragma once

#include <cstdint>
#include <string>

#include "status.h"
#include "triton_abi.h"

namespace aoti {

// The families of metrics, made once for the life of the backend: the server hangs when a model
// makes them at a reload. Call before the first model and after the last one. A server without
// metrics is told of in the log and is no error.
void StartMetrics();
void StopMetrics();

// The metrics of one version of a model about its weights, there from this object's beginning to
// its end. Without families, does nothing.
class WeightsMetrics {
 public:
  WeightsMetrics(const std::string& model, const std::string& version);
  ~WeightsMetrics();
  WeightsMetrics(const WeightsMetrics&) = delete;
  WeightsMetrics& operator=(const WeightsMetrics&) = delete;

  // aoti_weights_version: the number of the push that serves, 0 for the package's own weights.
  void SetVersion(int64_t version);
  // aoti_weights_push_failures: one more.
  void CountFailure();

 private:
  TRITONSERVER_Metric* version_ = nullptr;   // deleted by the destructor
  TRITONSERVER_Metric* failures_ = nullptr;  // likewise
};

}  // namespace aoti
