// From a version's folder to a package that can run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "manifest.h"
#include "package.h"
#include "status.h"
#include "tensor.h"

namespace aoti {

// Loads the package of `manifest`, which was read from `folder`, onto `place` with at least
// `runners` runners. Its files are verified first, an archive is unpacked into the store, and a
// GPU must be one that the code runs on.
//
// Packages of equal content on one place with equal runners are one load, whatever model, version
// or instance asks, for as long as one of them holds it: but for those with updatable weights,
// which each model must have for itself. Safe for any number of threads.
Result<std::shared_ptr<Package>> LoadPackage(const std::filesystem::path& folder,
                                             const Manifest& manifest, Place place, size_t runners);

}  // namespace aoti
