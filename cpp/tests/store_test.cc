// The folder that unpacked packages share.
#include "store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "fake_server.h"
#include "sha256.h"
#include "temp_folder.h"
#include "zip_writer.h"

namespace aoti {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Store : public ::testing::Test {
 protected:
  Store() {
    archive_ = Write("m.pt2",
                     {{.name = "m/data/a.so", .data = "code"}, {.name = "m/version", .data = "1"}});
    digest_ = DigestOf(archive_);
  }

  std::filesystem::path Write(const std::string& name, const std::vector<ZipItem>& items) const {
    WriteFile(temp_.path() / name, Zip(items));
    return temp_.path() / name;
  }
  static std::string DigestOf(const std::filesystem::path& path) {
    return Sha256Of(AsBytes(ReadFile(path)));
  }
  std::set<std::string> Stored() const {
    std::set<std::string> found;
    if (!std::filesystem::exists(root_)) return found;
    for (const auto& item : std::filesystem::directory_iterator(root_)) {
      if (item.path().filename() != "lock") found.insert(item.path().filename());
    }
    return found;
  }
  // Makes the entry look unused for `days`.
  static void Age(const std::filesystem::path& entry, int days) {
    const auto then = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24 * days);
    std::filesystem::last_write_time(entry, then);
  }

  const TempFolder temp_;
  const std::filesystem::path root_ = temp_.path() / "deep" / "store";
  const ScopedVariable variable_{"AOTI_PACK_STORE", root_.string()};
  std::filesystem::path archive_;
  std::string digest_;
};

TEST_F(Store, UnpacksOnceAndShares) {
  const auto one = StoredPackage::Get(archive_, digest_);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->folder(), root_ / digest_ / "package");
  EXPECT_THAT(Everything(one->folder()), UnorderedElementsAre("data", "data/a.so", "version"));
  EXPECT_EQ(ReadFile(one->folder() / "data" / "a.so"), "code");
  struct stat before{};
  ASSERT_EQ(::stat((one->folder() / "version").c_str(), &before), 0);
  const auto two = StoredPackage::Get(archive_, digest_);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->folder(), one->folder());
  struct stat after{};
  ASSERT_EQ(::stat((two->folder() / "version").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  struct stat root{};
  ASSERT_EQ(::stat(root_.c_str(), &root), 0);
  EXPECT_EQ(root.st_mode & 0777u, 0700u);
}

TEST_F(Store, WhatWasSpoiledIsUnpackedAgain) {
  ASSERT_TRUE(StoredPackage::Get(archive_, digest_).ok());
  const std::filesystem::path package = root_ / digest_ / "package";
  const auto spoil = {
      +[](const std::filesystem::path& p) { WriteFile(p / "data" / "a.so", "evil"); },
      +[](const std::filesystem::path& p) { std::filesystem::remove(p / "version"); },
      +[](const std::filesystem::path& p) { WriteFile(p / "data" / "more.so", "evil"); },
      +[](const std::filesystem::path& p) { std::filesystem::remove(p / ".." / "files"); },
      +[](const std::filesystem::path& p) { WriteFile(p / ".." / "files", "{\"files\": [3]}"); },
  };
  for (const auto& how : spoil) {
    how(package);
    fake::TakeLog();
    const auto again = StoredPackage::Get(archive_, digest_);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_THAT(fake::TakeLog(), Contains(HasSubstr("unpacking " + archive_.string() + " again")));
    EXPECT_THAT(Everything(package), UnorderedElementsAre("data", "data/a.so", "version"));
    EXPECT_EQ(ReadFile(package / "data" / "a.so"), "code");
  }
}

TEST_F(Store, AFailedUnpackLeavesNothing) {
  const auto wrong =
      Write("evil.pt2", {{.name = "m/a", .data = "1"}, {.name = "m/b", .data = "2", .crc = 3}});
  const auto got = StoredPackage::Get(wrong, DigestOf(wrong));
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.status().message(), HasSubstr("evil.pt2 holds the entry 'b', which is damaged"));
  EXPECT_THAT(Stored(), IsEmpty());
}

TEST_F(Store, WhatADeadProcessLeftIsReplaced) {
  WriteFile(root_ / (digest_ + ".new") / "package" / "data" / "a.so", "half");
  const auto got = StoredPackage::Get(archive_, digest_);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(ReadFile(got->folder() / "data" / "a.so"), "code");
  EXPECT_THAT(Stored(), UnorderedElementsAre(digest_));
}

TEST_F(Store, DiscardsWhatNobodyElseUses) {
  auto one = StoredPackage::Get(archive_, digest_);
  {
    auto two = StoredPackage::Get(archive_, digest_);
    ASSERT_EQ(two->Discard().message(), "");
    EXPECT_THAT(Stored(), UnorderedElementsAre(digest_));
  }
  ASSERT_EQ(one->Discard().message(), "");
  EXPECT_THAT(Stored(), IsEmpty());
}

TEST_F(Store, OldEntriesGoUnlessTheyAreUsed) {
  std::vector<std::string> digests;
  for (const char* text : {"used", "old", "recent"}) {
    const auto path = Write(std::string(text) + ".pt2", {{.name = "m/a", .data = text}});
    digests.push_back(DigestOf(path));
    ASSERT_TRUE(StoredPackage::Get(path, digests.back()).ok());
  }
  const auto used = StoredPackage::Get(temp_.path() / "used.pt2", digests[0]);
  Age(root_ / digests[0], 8);
  Age(root_ / digests[1], 8);
  Age(root_ / digests[2], 6);
  ASSERT_TRUE(StoredPackage::Get(archive_, digest_).ok());
  EXPECT_THAT(Stored(), UnorderedElementsAre(digests[0], digests[2], digest_));
}

TEST_F(Store, ManyAtOnceGetOne) {
  std::vector<std::thread> threads;
  std::vector<std::string> told(8);
  for (size_t i = 0; i < told.size(); ++i) {
    threads.emplace_back([this, i, &told] {
      const auto got = StoredPackage::Get(archive_, digest_);
      told[i] = got.ok() ? ReadFile(got->folder() / "data" / "a.so") : got.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(told, ::testing::Each("code"));
  EXPECT_THAT(Stored(), UnorderedElementsAre(digest_));
}

TEST_F(Store, AFolderThatOthersCanWriteIsRefused) {
  std::filesystem::create_directories(root_);
  ASSERT_EQ(::chmod(root_.c_str(), 0777), 0);
  EXPECT_EQ(StoreRoot().status().message(),
            root_.string() + " can be written by others: `chmod 700` it");
  std::filesystem::remove(root_);
  std::filesystem::create_directory(temp_.path() / "real");
  std::filesystem::create_directory_symlink(temp_.path() / "real", root_);
  EXPECT_EQ(StoreRoot().status().message(),
            root_.string() + " is not a folder: set AOTI_PACK_STORE to a folder of your own");
}

TEST_F(Store, AFolderOfSomeoneElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  std::filesystem::create_directories(root_);
  ASSERT_EQ(::chmod(root_.c_str(), 0700), 0);
  ASSERT_EQ(::chown(root_.c_str(), 12345, 12345), 0);
  EXPECT_EQ(StoreRoot().status().message(),
            root_.string() +
                " belongs to user 12345, and the server runs as user 0: set "
                "AOTI_PACK_STORE to a folder of your own");
}

TEST_F(Store, LiesBelowTheTemporaryFolderByDefault) {
  const ScopedVariable none("AOTI_PACK_STORE", "");
  const ScopedVariable temporary("TMPDIR", (temp_.path() / "tmp").string());
  const auto root = StoreRoot();
  ASSERT_TRUE(root.ok()) << root.status().message();
  EXPECT_EQ(*root, temp_.path() / "tmp" / ("aoti-pack-" + std::to_string(::geteuid())));
}

}  // namespace
}  // namespace aoti
