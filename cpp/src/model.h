// A model that the server has loaded, and its instances.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "executor.h"
#include "manifest.h"
#include "model_config.h"
#include "package.h"
#include "statistics.h"
#include "status.h"
#include "triton_abi.h"
#include "weights.h"

namespace aoti {

// What all instances of a model share: the manifest, and the package once for each device.
class Model {
 public:
  // Reads the manifest of `folder` (a version's folder in the repository) and refuses a
  // configuration, a machine or an executor that does not suit it. `config` is config.pbtxt as
  // JSON; what it leaves out is filled in from the manifest where `complete` says so.
  static Result<std::unique_ptr<Model>> Create(std::string name,
                                               const std::filesystem::path& folder,
                                               std::string_view config, bool complete);

  const std::string& name() const { return name_; }
  const Manifest& manifest() const { return manifest_; }
  size_t threads() const { return threads_; }
  // config.pbtxt as JSON, with what was filled in.
  const std::string& config() const { return config_; }

  // Where an instance of `kind` on device `device_id` computes. INVALID_ARG when the package is for
  // another kind of device.
  Result<Place> PlaceOf(TRITONSERVER_InstanceGroupKind kind, int32_t device_id) const;

  // The package on `place`, loaded at the first call for it. Safe for any number of threads.
  Result<std::shared_ptr<Package>> PackageOn(Place place);

 private:
  Model(std::string name, std::filesystem::path folder, Manifest manifest, std::string config,
        size_t instances, size_t threads);

  const std::string name_;
  const std::filesystem::path folder_;
  const Manifest manifest_;
  const std::string config_;
  const size_t instances_;
  const size_t threads_;
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Package>> packages_;  // by Place::gpu
  std::unique_ptr<Weights> weights_;                      // null when they cannot be replaced
};

// One thread's view of a model.
class Instance {
 public:
  // `model` must outlive this.
  static Result<std::unique_ptr<Instance>> Create(Model& model, TRITONBACKEND_ModelInstance* handle,
                                                  TRITONSERVER_InstanceGroupKind kind,
                                                  int32_t device_id);

  // Takes the requests over, answers and releases each of them. Called from one thread at a time.
  // An error means that none was taken.
  Status Execute(std::span<TRITONBACKEND_Request* const> requests) noexcept;

 private:
  Instance(const Model& model, TRITONBACKEND_ModelInstance* handle,
           std::shared_ptr<Package> package);

  const size_t threads_;
  const Statistics statistics_;
  const std::unique_ptr<Executor> executor_;
};

}  // namespace aoti
