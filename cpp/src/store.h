// Where packages that came as `.pt2` files lie unpacked.
//
// One folder for each content, shared by instances, versions, reloads and servers of one user:
//
//   ROOT/lock            held while an entry is made, checked or removed
//   ROOT/SHA256/package  what the archive holds
//   ROOT/SHA256/files    the size and the digest of each file of it, as JSON
//
// ROOT is $AOTI_PACK_STORE, else $TMPDIR (else /tmp) /aoti-pack-UID. It belongs to the user that
// the server runs as and nobody else can write to it, which is why `files` can be believed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "files.h"
#include "status.h"

namespace aoti {

// An unpacked package, which nobody removes while this lives.
class StoredPackage {
 public:
  // The package in `archive`, whose digest is known to be `sha256`: unpacked at the first call in
  // any process, checked against its list of digests at a later one. What a crash or a hand has
  // spoiled is unpacked again. A failure leaves nothing behind. Safe for any number of threads and
  // processes.
  static Result<StoredPackage> Get(const std::filesystem::path& archive, const std::string& sha256);

  std::filesystem::path folder() const { return entry_ / "package"; }

  // Removes the package, unless someone else uses it: for one that turns out not to load.
  Status Discard();

 private:
  StoredPackage(std::filesystem::path entry, File held)
      : entry_(std::move(entry)), held_(std::move(held)) {}

  std::filesystem::path entry_;
  File held_;  // the entry's folder, with a shared lock on it
};

// The store's folder, made if it is not there. UNSUPPORTED, with the mend, when it belongs to
// someone else, can be written by others, or lies where nothing can be executed.
Result<std::filesystem::path> StoreRoot();

}  // namespace aoti
