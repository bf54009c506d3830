#include "model.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "cpu.h"
#include "plain_executor.h"
#include "server.h"
#include "threads.h"

namespace aoti {
namespace {

// The part of a version before the build's suffix: "2.13.0" of "2.13.0+cpu".
std::string_view Release(std::string_view version) {
  return version.substr(0, version.find('+'));
}

Status CheckMachine(const Manifest& manifest) {
  std::string missing;
  for (const std::string& feature : MissingFeatures(manifest.target.cpu_features, ReadCpuInfo())) {
    missing += (missing.empty() ? "" : ", ") + feature;
  }
  if (missing.empty()) return {};
  return Unsupported("the package was compiled for a CPU with " + missing +
                     ", which this one lacks: compile it on this machine, or for an older target");
}

Status CheckExecutor(const Manifest& manifest) {
  if (manifest.executor == "plain") return {};
  return Unsupported("manifest.executor: this version of the backend has \"plain\", got \"" +
                     manifest.executor + "\"");
}

// N of "cuda:N", 0 for "cuda".
int64_t GpuIndex(std::string_view device) {
  int64_t index = 0;
  const size_t digits = std::min(device.find(':'), device.size() - 1) + 1;
  std::from_chars(device.data() + digits, device.data() + device.size(), index);
  return index;
}

}  // namespace

Model::Model(std::string name, std::filesystem::path folder, Manifest manifest, size_t instances,
             size_t threads)
    : name_(std::move(name)),
      folder_(std::move(folder)),
      manifest_(std::move(manifest)),
      instances_(instances),
      threads_(threads),
      weights_(manifest_.Updatable() ? std::make_unique<Weights>(name_, folder_, manifest_)
                                     : nullptr) {}

Result<std::unique_ptr<Model>> Model::Create(std::string name, const std::filesystem::path& folder,
                                             std::string_view config_text) {
  const auto named = [&name](const Status& status) {
    return Status(status.code(), name + ": " + status.message());
  };
  Result<Manifest> manifest = LoadManifest(folder);
  if (!manifest.ok()) return named(manifest.status());
  Result<ModelConfig> config = ParseModelConfig(config_text);
  if (!config.ok()) return named(config.status());
  for (const Status& status :
       {CheckExecutor(*manifest), CheckMachine(*manifest), CheckConfig(*config, *manifest)}) {
    if (!status.ok()) return named(status);
  }
  const Result<size_t> threads = ThreadBudget(config->threads, config->instances);
  if (!threads.ok()) return named(threads.status());
  if (Release(manifest->torch) != Release(RunningTorch())) {
    Log(TRITONSERVER_LOG_WARN, name + ": compiled with torch " + manifest->torch +
                                   ", served with torch " + RunningTorch());
  }
  Log(TRITONSERVER_LOG_INFO, name + ": " + std::to_string(config->instances) + " instance(s) x " +
                                 std::to_string(*threads) + " thread(s) on " +
                                 std::to_string(UsableCores()) + " core(s)");
  return std::unique_ptr<Model>(
      new Model(std::move(name), folder, std::move(*manifest), config->instances, *threads));
}

Result<Place> Model::PlaceOf(TRITONSERVER_InstanceGroupKind kind, int32_t device_id) const {
  const bool for_cpu = manifest_.target.device == "cpu";
  const bool on_gpu = kind == TRITONSERVER_INSTANCEGROUPKIND_GPU;
  if (for_cpu ? on_gpu : kind == TRITONSERVER_INSTANCEGROUPKIND_CPU) {
    return InvalidArgument(name_ + ": config.pbtxt: instance_group.kind: the package is for \"" +
                           manifest_.target.device + "\" and needs " +
                           (for_cpu ? "KIND_CPU, got KIND_GPU" : "KIND_GPU, got KIND_CPU"));
  }
  if (for_cpu) return Place{};
  return Place{on_gpu ? device_id : GpuIndex(manifest_.target.device)};
}

Result<std::shared_ptr<Package>> Model::PackageOn(Place place) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Package>& package = packages_[place.gpu];
  if (package == nullptr) {
    AOTI_ASSIGN_OR_RETURN(std::shared_ptr<Package> loaded,
                          Package::Load(folder_ / manifest_.package_path, manifest_.model_name,
                                        place, std::max(instances_, UsableCores())));
    if (weights_ != nullptr) AOTI_RETURN_IF_ERROR(weights_->Attach(loaded));
    package = std::move(loaded);
  }
  return package;
}

Instance::Instance(const Model& model, TRITONBACKEND_ModelInstance* handle,
                   std::shared_ptr<Package> package)
    : threads_(model.threads()),
      statistics_(handle),
      executor_(std::make_unique<PlainExecutor>(model.name(), model.manifest(), std::move(package),
                                                statistics_)) {}

Result<std::unique_ptr<Instance>> Instance::Create(Model& model,
                                                   TRITONBACKEND_ModelInstance* handle,
                                                   TRITONSERVER_InstanceGroupKind kind,
                                                   int32_t device_id) {
  AOTI_ASSIGN_OR_RETURN(const Place place, model.PlaceOf(kind, device_id));
  auto package = model.PackageOn(place);
  if (!package.ok()) {
    return Status(package.status().code(), model.name() + ": " + package.status().message());
  }
  return std::unique_ptr<Instance>(new Instance(model, handle, std::move(*package)));
}

Status Instance::Execute(std::span<TRITONBACKEND_Request* const> requests) noexcept {
  std::vector<Request> owned;
  try {
    UseThreads(threads_);
    owned.reserve(requests.size());
  } catch (...) {
    return CurrentException();
  }
  for (TRITONBACKEND_Request* request : requests) owned.emplace_back(request, statistics_);
  try {
    executor_->Execute(owned);
  } catch (...) {
    const Status status = CurrentException();
    for (Request& request : owned) {
      if (request.handle() != nullptr) request.Fail(status);
    }
  }
  return {};
}

}  // namespace aoti
