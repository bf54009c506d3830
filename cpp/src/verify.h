// Whether the files of a package are those that its manifest describes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "manifest.h"
#include "status.h"

namespace aoti {

// Every one of `files` lies below `folder` with the size and the digest that it says, is a plain
// file and is reached by no link that leads out of `folder`; and below the folder `package` (a path
// relative to `folder`) lies nothing else, since a loader takes what it finds. The error names the
// file, what was expected and found, and the mend.
//
// Returns how many bytes had to be read: a file that was hashed once is not read again in this
// process as long as its inode, size and times stay.
Result<uint64_t> VerifyFiles(const std::filesystem::path& folder,
                             const std::vector<PackageFile>& files, const std::string& package);

// The digest of what `files` has at `package`: names and contents. Only true once VerifyFiles has
// passed.
std::string PackageDigest(const std::vector<PackageFile>& files, const std::string& package);

}  // namespace aoti
