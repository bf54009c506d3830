// Verification of a package's files.
#include "verify.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "files.h"
#include "sha256.h"
#include "temp_folder.h"

namespace aoti {
namespace {

using ::testing::HasSubstr;

PackageFile Described(const std::string& path, const std::string& text) {
  return {path, text.size(), Sha256Of(std::as_bytes(std::span(text)))};
}

class Verify : public ::testing::Test {
 protected:
  Verify() {
    for (const char* name : {"package/p/a.so", "package/p/data/b.so", "eager.pt"}) {
      const std::string text = std::string("contents of ") + (name + std::string(name).size() - 4);
      WriteFile(Path(name), text);
      files_.push_back(Described(name, text));
    }
  }

  std::filesystem::path Path(const std::string& name) const { return temp_.path() / "1" / name; }
  std::string Refusal() const {
    return VerifyFiles(temp_.path() / "1", files_, "package/p").status().message();
  }

  const TempFolder temp_;
  std::vector<PackageFile> files_;
};

TEST_F(Verify, WhatIsRightPasses) {
  const auto read = VerifyFiles(temp_.path() / "1", files_, "package/p");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, files_[0].bytes + files_[1].bytes + files_[2].bytes);
}

TEST_F(Verify, ACutFileIsNamed) {
  std::filesystem::resize_file(Path("package/p/a.so"), 3);
  EXPECT_EQ(Refusal(), Path("package/p/a.so").string() +
                           " is not the file that the manifest describes: expected " +
                           std::to_string(files_[0].bytes) +
                           " bytes, found 3 bytes: write the model again with `aoti-pack`");
}

TEST_F(Verify, SwappedFilesAreNamedWithBothDigests) {
  ASSERT_EQ(files_[0].bytes, files_[1].bytes);
  std::filesystem::rename(Path("package/p/a.so"), Path("spare"));
  std::filesystem::rename(Path("package/p/data/b.so"), Path("package/p/a.so"));
  std::filesystem::rename(Path("spare"), Path("package/p/data/b.so"));
  EXPECT_EQ(Refusal(), Path("package/p/a.so").string() +
                           " is not the file that the manifest describes: expected sha256 " +
                           files_[0].sha256.substr(0, 12) + "…, found sha256 " +
                           files_[1].sha256.substr(0, 12) +
                           "…: write the model again with `aoti-pack`");
}

TEST_F(Verify, AnEditedFileIsRefusedThoughItPassedBefore) {
  ASSERT_EQ(Refusal(), "");
  WriteFile(Path("package/p/a.so"), std::string(files_[0].bytes, 'x'));
  EXPECT_THAT(Refusal(), HasSubstr("a.so is not the file that the manifest describes"));
}

TEST_F(Verify, AMissingFileIsNamed) {
  std::filesystem::remove(Path("eager.pt"));
  EXPECT_THAT(Refusal(), HasSubstr("eager.pt is missing or cannot be read (No such file"));
}

TEST_F(Verify, AnUnlistedFileInThePackageIsRefused) {
  WriteFile(Path("other.txt"), "beside the package nobody loads it");
  EXPECT_EQ(Refusal(), "");
  WriteFile(Path("package/p/data/c.so"), "loaders take what lies there");
  EXPECT_EQ(Refusal(), Path("package/p/data/c.so").string() +
                           " is not among the files that the manifest lists: remove it, or write "
                           "the model again with `aoti-pack`");
}

TEST_F(Verify, ALinkOutIsRefusedAndOneInsideIsNot) {
  WriteFile(temp_.path() / "outside", "contents of a.so");
  std::filesystem::rename(Path("eager.pt"), Path("moved.pt"));
  std::filesystem::create_symlink("moved.pt", Path("eager.pt"));
  EXPECT_EQ(Refusal(), "");
  std::filesystem::remove(Path("package/p/a.so"));
  std::filesystem::create_symlink("../../../outside", Path("package/p/a.so"));
  EXPECT_EQ(Refusal(), Path("package/p/a.so").string() +
                           " is a link that leads out of the model's folder, to " +
                           (temp_.path() / "outside").string() + ": put the file itself there");
  // A folder on the way is as good as a link at the end; one that only begins alike is outside too.
  std::filesystem::create_directory(temp_.path() / "10");
  std::filesystem::rename(temp_.path() / "1" / "package", temp_.path() / "10" / "package");
  std::filesystem::create_symlink("../10/package", temp_.path() / "1" / "package");
  EXPECT_THAT(Refusal(), HasSubstr("is a link that leads out of the model's folder"));
}

TEST_F(Verify, AVersionFolderMayBeALink) {
  std::filesystem::rename(temp_.path() / "1", temp_.path() / "elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", temp_.path() / "1");
  EXPECT_EQ(Refusal(), "");
}

TEST_F(Verify, APipeIsRefusedAndNotWaitedFor) {
  std::filesystem::remove(Path("eager.pt"));
  ASSERT_EQ(::mkfifo(Path("eager.pt").c_str(), 0600), 0);
  EXPECT_EQ(Refusal(), Path("eager.pt").string() +
                           " is not a plain file: write the model again with "
                           "`aoti-pack`");
}

TEST_F(Verify, APackageWithoutFilesIsRefused) {
  EXPECT_THAT(VerifyFiles(temp_.path() / "1", files_, "package/q").status().message(),
              HasSubstr("none of them is of the package at \"package/q\""));
}

TEST(VerifyMemory, AFileThatWasReadIsNotReadAgain) {
  // One that is older than the moment in which times cannot be trusted.
  const auto file = Open("/usr/bin/env", O_RDONLY);
  ASSERT_TRUE(file.ok());
  const std::filesystem::path real = std::filesystem::canonical("/usr/bin/env");
  const uint64_t bytes = std::filesystem::file_size(real);
  const std::string name = real.filename().string();
  PackageFile described{name, bytes, *Sha256OfFile(file->get(), "env")};
  EXPECT_EQ(*VerifyFiles(real.parent_path(), {described}, name), bytes);
  EXPECT_EQ(*VerifyFiles(real.parent_path(), {described}, name), 0u);
  // What is remembered is the digest, not that it was right.
  described.sha256 = std::string(64, '0');
  EXPECT_THAT(VerifyFiles(real.parent_path(), {described}, name).status().message(),
              HasSubstr("expected sha256 000000000000…, found sha256 "));
}

TEST(PackageDigest, IsOfNamesAndContentsInThePackage) {
  const PackageFile a{"package/p/a", 1, std::string(64, 'a')};
  const PackageFile b{"package/p/b", 1, std::string(64, 'b')};
  const PackageFile other{"eager.pt", 1, std::string(64, 'c')};
  const std::string digest = PackageDigest({a, b}, "package/p");
  EXPECT_EQ(PackageDigest({b, other, a}, "package/p"), digest);
  EXPECT_EQ(
      PackageDigest({{"package/q/a", 1, a.sha256}, {"package/q/b", 1, b.sha256}}, "package/q"),
      digest);
  EXPECT_NE(
      PackageDigest({{"package/p/b", 1, a.sha256}, {"package/p/a", 1, b.sha256}}, "package/p"),
      digest);
  EXPECT_NE(PackageDigest({a}, "package/p"), digest);
}

}  // namespace
}  // namespace aoti
