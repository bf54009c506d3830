#include "constant_buffers.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <string_view>
#include <utility>

#include "files.h"
#include "server.h"

namespace aoti {
namespace {

// Torch's loader refuses constants of this kind; they are made from others at the first run.
constexpr std::string_view kFolded = "_FOLDED_CONST_";

Status Failure(const std::string& doing) {
  try {
    throw;
  } catch (const c10::Error& error) {
    return Internal(doing + ": " + error.what_without_backtrace());
  } catch (...) {
    const Status status = CurrentException();
    return Status(status.code(), doing + ": " + status.message());
  }
}

// A tensor like `like` in a storage of its own, from its first byte: the loader copies whole
// storages and keeps the strides, which the compiled code relies on.
at::Tensor EmptyLike(const at::Tensor& like) {
  return at::empty_strided(like.sizes(), like.strides(), like.options());
}

Result<at::Tensor> NewValue(const NewConstant& value, const at::Tensor& now) {
  const ConstantSpec& spec = *value.spec;
  if (std::string_view(c10::getDtypeNames(now.scalar_type()).first) != spec.datatype->torch_name ||
      now.sizes() != at::IntArrayRef(spec.shape) || now.nbytes() != value.data.size()) {
    return InvalidArgument("constant " + Quoted(spec.name) + ": the package has " +
                           std::string(c10::getDtypeNames(now.scalar_type()).first) + " " +
                           ShapeText(now.sizes()) + ", its manifest " +
                           std::string(spec.datatype->torch_name) + " " + ShapeText(spec.shape));
  }
  at::Tensor given = at::from_blob(const_cast<std::byte*>(value.data.data()), now.sizes(),
                                   now.options().device(c10::kCPU));
  // The loader copies bytes, at any alignment.
  if (now.is_cpu() && now.is_contiguous()) return given;
  at::Tensor fresh = EmptyLike(now);
  fresh.copy_(given.clone());  // which is aligned
  return fresh;
}

}  // namespace

ConstantBuffers::ConstantBuffers(torch::inductor::AOTIModelPackageLoader& loader,
                                 RunnerSlots& slots, c10::Device device)
    : loader_(loader), slots_(slots), device_(device) {}

Status ConstantBuffers::CheckPopulated() const {
  const auto* runner = loader_.get_runner();
  const auto names = runner->getConstantNamesToOriginalFQNs();
  if (names.empty()) return {};
  const auto populated = runner->extract_constants_map(/*use_inactive=*/false);
  for (const auto& [internal, name] : names) {
    if (internal.starts_with(kFolded) || populated.contains(name)) continue;
    return InvalidArgument("the package came without its constant " + Quoted(name) +
                           ": compile it with its weights inside");
  }
  return {};
}

// A value for every constant, by the name that it has inside the package.
Result<ConstantBuffers::TensorMap> ConstantBuffers::NewSet(
    std::span<const NewConstant> values) const {
  const auto* runner = loader_.get_runner();
  const auto now = runner->extract_constants_map(/*use_inactive=*/false);
  std::unordered_map<std::string_view, const NewConstant*> wanted;
  for (const NewConstant& value : values) {
    if (!now.contains(value.spec->name)) {
      return InvalidArgument("the package has no constant " + Quoted(value.spec->name));
    }
    wanted.emplace(value.spec->name, &value);
  }
  TensorMap set;
  for (const auto& [internal, name] : runner->getConstantNamesToOriginalFQNs()) {
    const auto in_use = now.find(name);
    if (in_use == now.end()) continue;
    const auto found = wanted.find(name);
    if (found == wanted.end()) {
      set.emplace(internal, EmptyLike(in_use->second).copy_(in_use->second));
    } else {
      AOTI_ASSIGN_OR_RETURN(at::Tensor tensor, NewValue(*found->second, in_use->second));
      set.emplace(internal, std::move(tensor));
    }
  }
  return set;
}

Status ConstantBuffers::Stage(std::span<const NewConstant> values) {
  const c10::InferenceMode no_autograd;
  Release();
  bool begun = false;
  try {
    AOTI_ASSIGN_OR_RETURN(TensorMap set, NewSet(values));
    begun = true;
    loader_.get_runner()->update_constant_buffer(set, /*use_inactive=*/true,
                                                 /*validate_full_updates=*/true);
    staged_ = true;
    return {};
  } catch (...) {
    const Status status = Failure("the new weights cannot be loaded");
    staged_ = begun;  // in part
    Release();
    return status;
  }
}

Status ConstantBuffers::Swap() {
  if (!staged_) return Internal("no weights are staged");
  try {
    const RunnerSlots::Pause pause(slots_);
    // Kernels of runs that returned may still be queued on the old set.
    if (!device_.is_cpu()) {
      const c10::impl::VirtualGuardImpl guard(device_.type());
      guard.synchronizeDevice(device_.index());
    }
    loader_.get_runner()->swap_constant_buffer();
    return {};
  } catch (...) {
    return Failure("the new weights cannot be put in use");
  }
}

void ConstantBuffers::Release() noexcept {
  if (!staged_) return;
  staged_ = false;
  try {
    loader_.get_runner()->free_inactive_constant_buffer();
  } catch (...) {
    Log(TRITONSERVER_LOG_WARN, Failure("weights cannot be freed").message());
  }
}

}  // namespace aoti
