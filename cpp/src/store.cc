#include "store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "archive.h"
#include "json.h"
#include "manifest.h"
#include "server.h"
#include "sha256.h"
#include "verify.h"

namespace aoti {
namespace {

namespace fs = std::filesystem;

constexpr char kMend[] = ": set AOTI_PACK_STORE to a folder of your own";
constexpr char kPackage[] = "package";
constexpr char kFiles[] = "files";
constexpr char kUnfinished[] = ".new";
constexpr size_t kDigestLength = 64;
// An entry that no server has used for so long is removed when another one is made.
constexpr std::chrono::hours kKept{7 * 24};

Status Lock(const File& file, int how, const fs::path& path) {
  while (::flock(file.get(), how) != 0) {
    if (errno != EINTR) return ErrnoStatus(path.string(), "cannot be locked");
  }
  return {};
}

// Removes a folder when it goes, unless it is kept.
class Unfinished {
 public:
  explicit Unfinished(fs::path path) : path_(std::move(path)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
    if (error) Log(TRITONSERVER_LOG_WARN, path_.string() + " is left: " + error.message());
  }
  void Keep() { path_.clear(); }

 private:
  fs::path path_;
};

Status Remove(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return Internal(path.string() + " cannot be removed: " + error.message());
  return {};
}

// Hashes the files below `folder`/package and writes the list beside it.
Status WriteList(const fs::path& folder) {
  Json files = Json::array();
  std::error_code error;
  fs::recursive_directory_iterator item(folder / kPackage, error);
  for (; !error && item != fs::recursive_directory_iterator(); item.increment(error)) {
    std::error_code unknown;
    if (item->is_directory(unknown)) continue;
    AOTI_ASSIGN_OR_RETURN(const File file, Open(item->path(), O_RDONLY));
    AOTI_ASSIGN_OR_RETURN(const std::string digest,
                          Sha256OfFile(file.get(), item->path().string()));
    files.push_back({{"path", item->path().lexically_relative(folder).generic_string()},
                     {"bytes", fs::file_size(item->path(), unknown)},
                     {"sha256", digest}});
  }
  if (error) return Internal(folder.string() + " cannot be read: " + error.message());
  const std::string text = Json{{"files", files}}.dump();
  const fs::path list = folder / kFiles;
  {
    AOTI_ASSIGN_OR_RETURN(const File out, Open(list, O_WRONLY | O_CREAT | O_EXCL));
    AOTI_RETURN_IF_ERROR(WriteAll(out.get(), std::as_bytes(std::span(text)), list.string()));
  }
  AOTI_RETURN_IF_ERROR(Sync(list));
  return Sync(folder);
}

// Unpacks beside `entry` and moves the whole into place.
Status Make(const fs::path& archive, const fs::path& entry) {
  const fs::path beside = entry.string() + kUnfinished;
  AOTI_RETURN_IF_ERROR(Remove(beside));  // of a process that died
  Unfinished unfinished(beside);
  std::error_code error;
  fs::create_directories(beside / kPackage, error);
  if (error) return Internal(beside.string() + " cannot be made: " + error.message());
  AOTI_RETURN_IF_ERROR(Unpack(archive, beside / kPackage));
  AOTI_RETURN_IF_ERROR(WriteList(beside));
  fs::rename(beside, entry, error);
  if (error) return Internal(entry.string() + " cannot be made: " + error.message());
  unfinished.Keep();
  return Sync(entry.parent_path());
}

// The files of `entry` are those that were unpacked.
Status Check(const fs::path& entry) {
  std::ifstream stream(entry / kFiles, std::ios::binary);
  if (!stream) return Internal((entry / kFiles).string() + " cannot be read");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  AOTI_ASSIGN_OR_RETURN(const Json json, ParseJson(text, "files"));
  AOTI_ASSIGN_OR_RETURN(const std::vector<PackageFile> files, ReadFiles(Fields(json, "files")));
  const Result<uint64_t> read = VerifyFiles(entry, files, kPackage);
  return read.status();
}

bool IsEntry(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.size() == kDigestLength &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Removes the entries that no server uses and none has used for kKept. Needs the store's lock.
void RemoveOld(const fs::path& root) {
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator item(root, error); !error && item != fs::directory_iterator();
       item.increment(error)) {
    std::error_code unknown;
    const auto used = fs::last_write_time(item->path(), unknown);
    if (unknown || !IsEntry(item->path()) || now - used < kKept) continue;
    const Result<File> folder = Open(item->path(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!folder.ok() || ::flock(folder->get(), LOCK_EX | LOCK_NB) != 0) continue;
    const Status removed = Remove(item->path());
    if (!removed.ok()) Log(TRITONSERVER_LOG_WARN, removed.message());
  }
}

Result<File> LockStore(const fs::path& root) {
  const fs::path path = root / "lock";
  AOTI_ASSIGN_OR_RETURN(File file, Open(path, O_RDWR | O_CREAT | O_NOFOLLOW));
  AOTI_RETURN_IF_ERROR(Lock(file, LOCK_EX, path));
  return file;
}

// Opens `entry`, marks it as used now and holds it.
Result<File> Hold(const fs::path& entry) {
  AOTI_ASSIGN_OR_RETURN(File file, Open(entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (::futimens(file.get(), nullptr) != 0) return ErrnoStatus(entry.string(), "cannot be used");
  AOTI_RETURN_IF_ERROR(Lock(file, LOCK_SH, entry));
  return file;
}

fs::path RootPath() {
  const char* chosen = std::getenv("AOTI_PACK_STORE");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  const char* temporary = std::getenv("TMPDIR");
  const fs::path parent = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  return parent / ("aoti-pack-" + std::to_string(::geteuid()));
}

}  // namespace

Result<fs::path> StoreRoot() {
  const fs::path root = RootPath();
  std::error_code error;
  fs::create_directories(root.parent_path(), error);
  if (::mkdir(root.c_str(), 0700) != 0 && errno != EEXIST) {
    const Status status = ErrnoStatus(root.string(), "cannot be made");
    return Unsupported(status.message() + kMend);
  }
  struct stat status{};
  if (::lstat(root.c_str(), &status) != 0) return ErrnoStatus(root.string(), "cannot be read");
  if (!S_ISDIR(status.st_mode)) return Unsupported(root.string() + " is not a folder" + kMend);
  if (status.st_uid != ::geteuid()) {
    return Unsupported(root.string() + " belongs to user " + std::to_string(status.st_uid) +
                       ", and the server runs as user " + std::to_string(::geteuid()) + kMend);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Unsupported(root.string() + " can be written by others: `chmod 700` it");
  }
  struct statvfs system{};
  if (::statvfs(root.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) {
    return Unsupported(root.string() +
                       " is on a file system mounted noexec, and a package is code" + kMend +
                       " elsewhere");
  }
  const fs::path real = fs::canonical(root, error);
  if (error) return Internal(root.string() + " cannot be read: " + error.message());
  return real;
}

Result<StoredPackage> StoredPackage::Get(const fs::path& archive, const std::string& sha256) {
  AOTI_ASSIGN_OR_RETURN(const fs::path root, StoreRoot());
  const fs::path entry = root / sha256;
  AOTI_ASSIGN_OR_RETURN(const File lock, LockStore(root));
  std::error_code error;
  if (fs::exists(fs::symlink_status(entry, error))) {
    const Status status = Check(entry);
    if (!status.ok()) {
      Log(TRITONSERVER_LOG_WARN,
          "unpacking " + archive.string() + " again, since " + status.message());
      // Whoever has loaded it keeps its files; they only lose their names.
      AOTI_RETURN_IF_ERROR(Remove(entry));
    }
  }
  if (!fs::exists(fs::symlink_status(entry, error))) {
    AOTI_RETURN_IF_ERROR(Make(archive, entry));
    RemoveOld(root);
  }
  AOTI_ASSIGN_OR_RETURN(File held, Hold(entry));
  return StoredPackage(entry, std::move(held));
}

Status StoredPackage::Discard() {
  AOTI_ASSIGN_OR_RETURN(const File lock, LockStore(entry_.parent_path()));
  if (::flock(held_.get(), LOCK_EX | LOCK_NB) != 0) return {};
  // The name may be that of a newer one by now.
  struct stat ours{};
  struct stat named{};
  if (::fstat(held_.get(), &ours) != 0 || ::lstat(entry_.c_str(), &named) != 0 ||
      ours.st_ino != named.st_ino) {
    return {};
  }
  return Remove(entry_);
}

}  // namespace aoti
