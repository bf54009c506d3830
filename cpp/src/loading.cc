#include "loading.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "machine.h"
#include "server.h"
#include "store.h"
#include "verify.h"

namespace aoti {
namespace {

namespace fs = std::filesystem;

// Content, model name inside, place, runners.
using Key = std::tuple<std::string, std::string, int64_t, size_t>;

// The packages that are loaded in this process and may be shared.
struct Shared {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<Package>> packages;
};

Shared& Registry() {
  static Shared registry;
  return registry;
}

// A package and what it stands on.
struct Standing {
  std::optional<StoredPackage> stored;  // outlives the package
  std::shared_ptr<Package> package;
};

bool Updatable(const Manifest& manifest) {
  return std::any_of(manifest.constants.begin(), manifest.constants.end(),
                     [](const ConstantSpec& constant) { return constant.updatable; });
}

// Unpacks the package if it is an archive.
Result<std::optional<StoredPackage>> Store(const fs::path& path, const Manifest& manifest) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::optional<StoredPackage>();
  const auto listed =
      std::find_if(manifest.files.begin(), manifest.files.end(),
                   [&](const PackageFile& file) { return file.path == manifest.package_path; });
  if (listed == manifest.files.end() || listed->sha256 != manifest.package_sha256) {
    return InvalidArgument(
        "manifest.package.sha256: expected the digest that manifest.files has for \"" +
        manifest.package_path + "\": write the model again with `aoti-pack`");
  }
  AOTI_ASSIGN_OR_RETURN(StoredPackage stored, StoredPackage::Get(path, listed->sha256));
  return std::optional<StoredPackage>(std::move(stored));
}

Result<std::shared_ptr<Package>> Load(const fs::path& path, const Manifest& manifest, Place place,
                                      size_t runners) {
  auto standing = std::make_shared<Standing>();
  AOTI_ASSIGN_OR_RETURN(standing->stored, Store(path, manifest));
  const fs::path from = standing->stored ? standing->stored->folder() : path;
  auto package = Package::Load(from, manifest.model_name, place, runners);
  if (!package.ok()) {
    if (standing->stored) {
      const Status discarded = standing->stored->Discard();
      if (!discarded.ok()) Log(TRITONSERVER_LOG_WARN, discarded.message());
    }
    return package.status();
  }
  standing->package = std::move(*package);
  Package* const loaded = standing->package.get();
  return std::shared_ptr<Package>(std::move(standing), loaded);
}

}  // namespace

Result<std::shared_ptr<Package>> LoadPackage(const fs::path& folder, const Manifest& manifest,
                                             Place place, size_t runners) {
  if (!place.on_host()) {
    AOTI_ASSIGN_OR_RETURN(const Capability capability, CapabilityOf(place.gpu));
    AOTI_RETURN_IF_ERROR(CheckGpu(manifest.target.march, capability));
  }
  AOTI_RETURN_IF_ERROR(VerifyFiles(folder, manifest.files, manifest.package_path).status());
  const fs::path path = folder / manifest.package_path;
  if (Updatable(manifest)) return Load(path, manifest, place, runners);
  Shared& registry = Registry();
  const std::lock_guard lock(registry.mutex);
  std::weak_ptr<Package>& known =
      registry.packages[{PackageDigest(manifest.files, manifest.package_path), manifest.model_name,
                         place.gpu, runners}];
  if (std::shared_ptr<Package> package = known.lock()) return package;
  auto package = Load(path, manifest, place, runners);
  if (package.ok()) known = *package;
  std::erase_if(registry.packages, [](const auto& item) { return item.second.expired(); });
  return package;
}

}  // namespace aoti
