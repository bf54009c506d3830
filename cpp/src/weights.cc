#include "weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "files.h"
#include "server.h"

namespace aoti {
namespace {

// How long the file of a pointer may be missing: on a network file system the names of a folder can
// arrive later than the content of a file in it.
constexpr std::chrono::seconds kGrace{5};
constexpr size_t kMostNames = 5;

// "'a', 'b' and 3 more"
std::string Names(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
    text += (i > 0 ? ", " : "") + Quoted(names[i]);
  }
  if (names.size() > kMostNames) {
    text += " and " + std::to_string(names.size() - kMostNames) + " more";
  }
  return text;
}

bool SameBytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

std::string TypeAndShape(const Datatype& type, std::span<const int64_t> shape) {
  return std::string(type.torch_name) + " " + ShapeText(shape);
}

Status CheckFits(const SafeTensor& tensor, const ConstantSpec& spec) {
  if (tensor.datatype == spec.datatype && tensor.shape == spec.shape) return {};
  return InvalidArgument("tensor " + Quoted(tensor.name) + ": the package has " +
                         TypeAndShape(*spec.datatype, spec.shape) + ", the file " +
                         TypeAndShape(*tensor.datatype, tensor.shape));
}

// The names under which a file may hold something for `manifest`.
std::map<std::string_view, bool> KnownNames(const Manifest& manifest) {
  std::map<std::string_view, bool> known;
  for (const std::string& name : manifest.unread) known.emplace(name, false);
  for (const ConstantSpec& constant : manifest.constants) {
    if (!constant.updatable) continue;
    known.emplace(constant.name, true);
    for (const std::string& alias : constant.aliases) known.emplace(alias, true);
  }
  return known;
}

}  // namespace

Result<std::vector<NewConstant>> MatchWeights(const Manifest& manifest,
                                              std::span<const SafeTensor> tensors) {
  const std::map<std::string_view, bool> known = KnownNames(manifest);
  std::map<std::string_view, const SafeTensor*> given;
  std::vector<std::string_view> unknown;
  for (const SafeTensor& tensor : tensors) {
    if (!known.contains(tensor.name)) unknown.push_back(tensor.name);
    given.emplace(tensor.name, &tensor);
  }
  std::vector<NewConstant> values;
  std::vector<std::string_view> missing;
  for (const ConstantSpec& spec : manifest.constants) {
    if (!spec.updatable) continue;
    const SafeTensor* found = nullptr;
    const auto take = [&](const std::string& name) -> Status {
      const auto tensor = given.find(name);
      if (tensor == given.end()) return {};
      AOTI_RETURN_IF_ERROR(CheckFits(*tensor->second, spec));
      if (found != nullptr && !SameBytes(found->data, tensor->second->data)) {
        return InvalidArgument("tensors " + Quoted(found->name) + " and " + Quoted(name) +
                               " are one tensor in the model and differ in the file");
      }
      found = tensor->second;
      return {};
    };
    AOTI_RETURN_IF_ERROR(take(spec.name));
    for (const std::string& alias : spec.aliases) AOTI_RETURN_IF_ERROR(take(alias));
    if (found == nullptr) {
      missing.push_back(spec.name);
    } else {
      values.push_back({&spec, found->data});
    }
  }
  if (!missing.empty()) return InvalidArgument("the file lacks " + Names(missing));
  if (!unknown.empty()) {
    return InvalidArgument("the file holds " + Names(unknown) +
                           ", which the package has no updatable constant for");
  }
  return values;
}

Status ReplaceConstants(std::span<const std::shared_ptr<Replaceable>> packages,
                        std::span<const NewConstant> values) {
  Status status;
  size_t staged = 0;
  for (; status.ok() && staged < packages.size(); ++staged) {
    status = packages[staged]->Stage(values);
  }
  size_t swapped = 0;
  for (; status.ok() && swapped < packages.size(); ++swapped) status = packages[swapped]->Swap();
  if (!status.ok() && swapped > 0) {
    // The last one failed to; those before it go back.
    for (size_t i = 0; i + 1 < swapped; ++i) {
      if (const Status undone = packages[i]->Swap(); !undone.ok()) {
        Log(TRITONSERVER_LOG_ERROR, "weights cannot be put back: " + undone.message());
      }
    }
  }
  for (size_t i = 0; i < staged; ++i) packages[i]->Release();
  return status;
}

Weights::Weights(std::string name, const std::filesystem::path& folder, const Manifest& manifest)
    : name_(std::move(name)),
      folder_(folder / kWeightsFolder),
      manifest_(manifest),
      metrics_(name_, folder.filename().string()) {}

Weights::~Weights() {
  watcher_.reset();  // its thread uses all the rest
}

Status Weights::Attach(std::shared_ptr<Replaceable> package) {
  const std::lock_guard lock(mutex_);
  if (watcher_ != nullptr) {
    if (serving_) {
      const std::shared_ptr<Replaceable> one[] = {package};
      AOTI_RETURN_IF_ERROR(Apply(*serving_, one));
    }
    packages_.push_back(std::move(package));
    return {};
  }
  packages_.push_back(std::move(package));
  Refresh();
  watcher_ = std::make_unique<WeightsWatcher>(folder_, [this] { Follow(); });
  return {};
}

// What the watcher's thread calls.
void Weights::Follow() noexcept {
  try {
    const std::lock_guard lock(mutex_);
    Refresh();
  } catch (...) {
    Log(TRITONSERVER_LOG_ERROR, name_ + ": weights: " + CurrentException().message());
  }
}

// Deals with the pointer unless it is the one that was dealt with last.
void Weights::Refresh() {
  const Result<std::optional<std::string>> text = ReadPointer(folder_);
  if (text.ok() && !text->has_value()) return;  // never pushed, or the folder is being replaced
  const std::string& now = text.ok() ? **text : text.status().message();
  if (seen_ == now) return;
  const Result<WeightsPointer> pointer =
      text.ok() ? ParsePointer(now) : Result<WeightsPointer>(text.status());
  if (pointer.ok() && serving_ == *pointer) {  // put back after a push that failed
    seen_ = now;
    return;
  }
  Status status = pointer.status();
  if (status.ok()) status = Apply(*pointer, packages_);
  if (MayStillCome(status)) return;
  seen_ = now;
  missing_since_.reset();
  if (status.ok()) serving_ = *pointer;
  Tell(pointer.ok() ? *pointer : WeightsPointer(), status);
}

// Whether the file of the pointer is missing and has been for a short time only. The watcher's next
// look tells.
bool Weights::MayStillCome(const Status& status) {
  if (status.code() != StatusCode::kNotFound) return false;
  const auto now = Clock::now();
  if (!missing_since_) missing_since_ = now;
  return now - *missing_since_ < kGrace;
}

Status Weights::Apply(const WeightsPointer& pointer,
                      std::span<const std::shared_ptr<Replaceable>> packages) const {
  if (pointer.package_sha256 != manifest_.package_sha256) {
    return InvalidArgument(
        "the weights were pushed for another package than the one that is loaded: load the model "
        "again, or restart the server");
  }
  try {
    AOTI_ASSIGN_OR_RETURN(const FileContent content, ReadWeights(folder_, pointer));
    AOTI_ASSIGN_OR_RETURN(const auto tensors, ReadSafetensors(content.bytes()));
    AOTI_ASSIGN_OR_RETURN(const auto values, MatchWeights(manifest_, tensors));
    return ReplaceConstants(packages, values);
  } catch (...) {  // such as no memory for the file
    return CurrentException();
  }
}

void Weights::Tell(const WeightsPointer& pointer, const Status& status) {
  const int64_t serving = serving_ ? serving_->version : 0;
  const std::string what = name_ + ": weights version " + std::to_string(pointer.version);
  if (status.ok()) {
    metrics_.SetVersion(serving);
    Log(TRITONSERVER_LOG_INFO, what + " serves now (sha256 " + pointer.sha256 + ")");
  } else {
    metrics_.CountFailure();
    Log(TRITONSERVER_LOG_ERROR, what + " is refused, version " + std::to_string(serving) +
                                    " serves on: " + status.message());
  }
  const Status written = WriteStatus(folder_, {pointer, status.ok(), status.message(), serving});
  if (!written.ok() && !status_fails_) {
    Log(TRITONSERVER_LOG_WARN,
        name_ +
            ": the status of weights cannot be written, the metric aoti_weights_version tells: " +
            written.message());
  }
  status_fails_ = !written.ok();
}

}  // namespace aoti
