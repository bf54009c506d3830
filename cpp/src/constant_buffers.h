// The two sets of constants that torch keeps of a loaded package.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <span>
#include <string>
#include <unordered_map>

#include "constants.h"
#include "runner_slots.h"
#include "status.h"

namespace aoti {

// Torch's own functions check nothing: a value of another type or with other strides than the
// constant corrupts memory, and so does a swap to a set that was never filled. Here both are
// refused. One thread at a time; runs go on meanwhile.
class ConstantBuffers {
 public:
  // The runs of `loader` hold a slot of `slots`. Both must outlive this.
  ConstantBuffers(torch::inductor::AOTIModelPackageLoader& loader, RunnerSlots& slots,
                  c10::Device device);

  // INVALID_ARG when the package came without its weights: its first run would crash.
  Status CheckPopulated() const;

  // As in Replaceable.
  Status Stage(std::span<const NewConstant> values);
  Status Swap();
  void Release() noexcept;

 private:
  using TensorMap = std::unordered_map<std::string, at::Tensor>;
  Result<TensorMap> NewSet(std::span<const NewConstant> values) const;

  torch::inductor::AOTIModelPackageLoader& loader_;
  RunnerSlots& slots_;
  const c10::Device device_;
  bool staged_ = false;
};

}  // namespace aoti
