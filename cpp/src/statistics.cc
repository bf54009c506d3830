#include "statistics.h"

#include <chrono>

#include "server.h"

namespace aoti {
uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Timeline Timeline::Now() {
  const uint64_t now = NowNs();
  return {now, now, now, now};
}

void Statistics::ReportRequest(TRITONBACKEND_Request* request, bool success,
                               const Timeline& times) const noexcept {
  LogError(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request, success, times.start_ns,
                                                       times.compute_start_ns, times.compute_end_ns,
                                                       times.end_ns));
}

void Statistics::ReportRun(uint64_t rows, const Timeline& times) const noexcept {
  LogError(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance_, rows, times.start_ns, times.compute_start_ns, times.compute_end_ns, times.end_ns));
}

}  // namespace aoti
