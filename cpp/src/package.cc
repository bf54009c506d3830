#include "package.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <mutex>
#include <utility>

#include "device.h"
#include "runner_slots.h"
#include "scalar_types.h"

namespace aoti {
namespace {

using torch::inductor::AOTIModelPackageLoader;

OutputTensor ToOutput(at::Tensor tensor) {
  auto owner = std::make_shared<at::Tensor>(tensor.contiguous());
  OutputTensor output;
  output.data = static_cast<const std::byte*>(owner->const_data_ptr());
  output.place = owner->is_cpu() ? Place{} : Place{owner->device().index()};
  output.datatype = FromScalarType(owner->scalar_type());
  output.shape.assign(owner->sizes().begin(), owner->sizes().end());
  output.bytes = owner->nbytes();
  output.owner = std::move(owner);
  return output;
}

// Loaders that are made at the same time can bring the process down.
std::mutex& LoadLock() {
  static std::mutex lock;
  return lock;
}

}  // namespace

struct Package::Loaded {
  Loaded(const std::string& path, const std::string& model_name, Place on, size_t runners)
      : place(on),
        slots(runners),
        loader(path, model_name, /*run_single_threaded=*/false, runners,
               static_cast<c10::DeviceIndex>(on.gpu)) {}

  const Place place;
  RunnerSlots slots;
  AOTIModelPackageLoader loader;
};

Package::Package(std::unique_ptr<Loaded> loaded) : loaded_(std::move(loaded)) {}

Package::~Package() {
  // The end of one model must not meet the start of another.
  const std::lock_guard lock(LoadLock());
  loaded_.reset();
}

Result<std::shared_ptr<Package>> Package::Load(const std::filesystem::path& path,
                                               const std::string& model_name, Place place,
                                               size_t runners) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Status(StatusCode::kNotFound, path.string() + " does not exist: write the model again");
  }
  try {
    const std::lock_guard lock(LoadLock());
    auto loaded = std::make_unique<Loaded>(path.string(), model_name, place, runners);
    return std::shared_ptr<Package>(new Package(std::move(loaded)));
  } catch (const c10::Error& failure) {
    return Internal(path.string() + " cannot be loaded: " + failure.what_without_backtrace());
  } catch (const std::exception& failure) {
    return Internal(path.string() + " cannot be loaded: " + failure.what());
  }
}

Place Package::place() const {
  return loaded_->place;
}

Result<std::vector<OutputTensor>> Package::Run(std::span<const TensorRef> inputs) {
  const c10::InferenceMode no_autograd;
  const c10::Device device = DeviceOf(loaded_->place);
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const TensorRef& input : inputs) {
    at::Tensor tensor = at::from_blob(
        input.data, at::IntArrayRef(input.shape.data(), input.shape.size()),
        at::TensorOptions().dtype(ToScalarType(*input.datatype)).device(DeviceOf(input.place)));
    tensors.push_back(input.place == loaded_->place ? std::move(tensor) : tensor.to(device));
  }
  std::vector<at::Tensor> results;
  try {
    const RunnerSlots::Slot slot(loaded_->slots);
    results = loaded_->loader.run(tensors);
  } catch (const c10::Error& failure) {
    return Internal(std::string("the model failed: ") + failure.what_without_backtrace());
  }
  std::vector<OutputTensor> outputs;
  outputs.reserve(results.size());
  for (at::Tensor& result : results) outputs.push_back(ToOutput(std::move(result)));
  return outputs;
}

std::string RunningTorch() {
  return TORCH_VERSION;
}

}  // namespace aoti
