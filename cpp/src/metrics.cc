#include "metrics.h"

#include <array>
#include <memory>

#include "server.h"

namespace aoti {
namespace {

struct DeleteFamily {
  void operator()(TRITONSERVER_MetricFamily* family) const {
    LogError(TRITONSERVER_MetricFamilyDelete(family));
  }
  static void LogError(TRITONSERVER_Error* error) {
    const Status status = FromServerError(error);
    if (!status.ok()) Log(TRITONSERVER_LOG_WARN, "metrics: " + status.message());
  }
};
using Family = std::unique_ptr<TRITONSERVER_MetricFamily, DeleteFamily>;

struct Families {
  Family version;
  Family failures;
};

Families& TheFamilies() {
  static Families families;
  return families;
}

struct DeleteParameter {
  void operator()(TRITONSERVER_Parameter* parameter) const {
    TRITONSERVER_ParameterDelete(parameter);
  }
};
using Label = std::unique_ptr<TRITONSERVER_Parameter, DeleteParameter>;

Label NewLabel(const char* name, const std::string& value) {
  return Label(TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, value.c_str()));
}

Result<Family> NewFamily(TRITONSERVER_MetricKind kind, const char* name, const char* description) {
  TRITONSERVER_MetricFamily* family = nullptr;
  AOTI_RETURN_IF_ERROR(
      FromServerError(TRITONSERVER_MetricFamilyNew(&family, kind, name, description)));
  return Family(family);
}

Status MakeFamilies() {
  AOTI_ASSIGN_OR_RETURN(
      Family version,
      NewFamily(TRITONSERVER_METRIC_KIND_GAUGE, "aoti_weights_version",
                "Number of the weight push that serves; 0 for the package's own weights"));
  AOTI_ASSIGN_OR_RETURN(Family failures,
                        NewFamily(TRITONSERVER_METRIC_KIND_COUNTER, "aoti_weights_push_failures",
                                  "Weight pushes that were refused"));
  TheFamilies() = {std::move(version), std::move(failures)};
  return {};
}

TRITONSERVER_Metric* NewMetric(const Family& family, const std::string& model,
                               const std::string& version) {
  if (family == nullptr) return nullptr;
  const Label model_label = NewLabel("model", model);
  const Label version_label = NewLabel("version", version);
  std::array<const TRITONSERVER_Parameter*, 2> labels{model_label.get(), version_label.get()};
  TRITONSERVER_Metric* metric = nullptr;
  DeleteFamily::LogError(
      TRITONSERVER_MetricNew(&metric, family.get(), labels.data(), labels.size()));
  return metric;
}

void Delete(TRITONSERVER_Metric* metric) {
  if (metric != nullptr) DeleteFamily::LogError(TRITONSERVER_MetricDelete(metric));
}

}  // namespace

void StartMetrics() {
  if (const Status status = MakeFamilies(); !status.ok()) {
    Log(TRITONSERVER_LOG_WARN, "no metrics about weights: " + status.message());
  }
}

void StopMetrics() {
  TheFamilies() = {};
}

WeightsMetrics::WeightsMetrics(const std::string& model, const std::string& version)
    : version_(NewMetric(TheFamilies().version, model, version)),
      failures_(NewMetric(TheFamilies().failures, model, version)) {}

WeightsMetrics::~WeightsMetrics() {
  Delete(version_);
  Delete(failures_);
}

void WeightsMetrics::SetVersion(int64_t version) {
  if (version_ == nullptr) return;
  DeleteFamily::LogError(TRITONSERVER_MetricSet(version_, static_cast<double>(version)));
}

void WeightsMetrics::CountFailure() {
  if (failures_ == nullptr) return;
  DeleteFamily::LogError(TRITONSERVER_MetricIncrement(failures_, 1));
}

}  // namespace aoti
