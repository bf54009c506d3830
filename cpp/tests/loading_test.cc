// Loading of real packages: verified, unpacked, shared.
#include "loading.h"

#include <gmock/gmock.h>

#include <cmath>
#include <thread>

#include "sha256.h"
#include "temp_folder.h"
#include "zip_writer.h"

namespace aoti {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kRepository = AOTI_TEST_REPOSITORY;

Manifest ManifestOf(const std::filesystem::path& folder) {
  Result<Manifest> manifest = LoadManifest(folder);
  EXPECT_TRUE(manifest.ok()) << manifest.status().message();
  return manifest.ok() ? std::move(*manifest) : Manifest();
}

Result<std::shared_ptr<Package>> Load(const std::string& model, size_t runners = 1) {
  const std::filesystem::path folder = kRepository / model / "1";
  return LoadPackage(folder, ManifestOf(folder), Place{}, runners);
}

// What `arith` gives for rows of `value`, "" when it is sin(x) * 2 + y, else what is wrong.
std::string RunArith(Package& package, float value) {
  std::vector<float> x(3 * 16, value);
  std::vector<float> y(3 * 16, 1);
  const std::vector<int64_t> shape{3, 16};
  const Datatype* type = FindDatatype("float32");
  const std::vector<TensorRef> inputs{{x.data(), Place{}, type, shape},
                                      {y.data(), Place{}, type, shape}};
  const auto outputs = package.Run(inputs);
  if (!outputs.ok()) return outputs.status().message();
  const auto* out = reinterpret_cast<const float*>(outputs->at(0).data);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::sin(static_cast<double>(value)) * 2 + 1;
    if (std::abs(out[i] - expected) > 1e-5) return "got " + std::to_string(out[i]);
  }
  return "";
}

TEST(Loading, EqualPackagesOnOnePlaceAreOneLoad) {
  auto one = Load("arith");
  ASSERT_TRUE(one.ok()) << one.status().message();
  // A copy in another folder is the same content.
  const TempFolder copy;
  std::filesystem::copy(kRepository / "arith" / "1", copy.path() / "2",
                        std::filesystem::copy_options::recursive);
  const auto two = LoadPackage(copy.path() / "2", ManifestOf(copy.path() / "2"), Place{}, 1);
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_EQ(*one, *two);
  EXPECT_NE(*one, *Load("arith", 2));
  EXPECT_NE(*one, *Load("scale"));
  EXPECT_EQ(RunArith(**two, 0.5), "");
}

TEST(Loading, ASharedLoadEndsWithItsLastUser) {
  const std::weak_ptr<Package> gone = *Load("arith");
  EXPECT_TRUE(gone.expired());
  const auto again = Load("arith");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(RunArith(**again, 2), "");
}

TEST(Loading, UpdatableWeightsAreNotShared) {
  const std::filesystem::path folder = kRepository / "arith" / "1";
  Manifest manifest = ManifestOf(folder);
  manifest.constants.push_back({"weight", FindDatatype("float32"), {2}, true, {}});
  const auto one = LoadPackage(folder, manifest, Place{}, 1);
  const auto two = LoadPackage(folder, manifest, Place{}, 1);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(*one, *two);
  EXPECT_NE(*one, *Load("arith"));
}

TEST(Loading, APackageThatClaimsAnothersDigestIsNotTakenForIt) {
  const auto arith = Load("arith");
  const std::filesystem::path folder = kRepository / "scale" / "1";
  Manifest manifest = ManifestOf(folder);
  manifest.package_sha256 = ManifestOf(kRepository / "arith" / "1").package_sha256;
  const auto scale = LoadPackage(folder, manifest, Place{}, 1);
  ASSERT_TRUE(scale.ok()) << scale.status().message();
  EXPECT_NE(*arith, *scale);
}

class Dropped : public ::testing::Test {
 protected:
  Dropped() {
    std::filesystem::copy(kRepository / "dropped" / "1", Folder(),
                          std::filesystem::copy_options::recursive);
    manifest_ = ManifestOf(Folder());
  }

  std::filesystem::path Folder() const { return temp_.path() / "1"; }
  std::set<std::string> Stored() const {
    std::set<std::string> stored = Everything(store_);
    stored.erase("lock");
    return stored;
  }

  const TempFolder temp_;
  const std::filesystem::path store_ = temp_.path() / "store";
  const ScopedVariable variable_{"AOTI_PACK_STORE", store_.string()};
  Manifest manifest_;
};

TEST_F(Dropped, AnArchiveIsServedFromTheStore) {
  const auto package = LoadPackage(Folder(), manifest_, Place{}, 1);
  ASSERT_TRUE(package.ok()) << package.status().message();
  EXPECT_EQ(RunArith(**package, 1), "");
  EXPECT_TRUE(
      std::filesystem::is_directory(store_ / manifest_.package_sha256 / "package" / "data"));
  const std::set<std::string> before = Everything(temp_.path());
  EXPECT_EQ(*LoadPackage(Folder(), manifest_, Place{}, 1), *package);
  EXPECT_EQ(Everything(temp_.path()), before);
}

TEST_F(Dropped, AContradictingDigestIsRefused) {
  manifest_.package_sha256 = std::string(64, 'a');
  EXPECT_EQ(LoadPackage(Folder(), manifest_, Place{}, 1).status().message(),
            "manifest.package.sha256: expected the digest that manifest.files has for "
            "\"model.pt2\": write the model again with `aoti-pack`");
}

// Verified and unpacked well, but nothing that torch can load.
TEST_F(Dropped, AFailedLoadLeavesNothing) {
  const std::string zip = Zip({{.name = "m/data/aotinductor/model/a.so", .data = "no code"}});
  WriteFile(Folder() / "model.pt2", zip);
  manifest_.package_sha256 = Sha256Of(AsBytes(zip));
  manifest_.files = {{"model.pt2", zip.size(), manifest_.package_sha256}};
  const auto package = LoadPackage(Folder(), manifest_, Place{}, 1);
  ASSERT_FALSE(package.ok());
  EXPECT_THAT(package.status().message(), HasSubstr("cannot be loaded: "));
  EXPECT_THAT(Stored(), IsEmpty());
}

// Case 2: loaders of their own, made and run at the same time.
TEST(Loading, Case2EightThreadsLoadTwentyPackagesEach) {
  const std::filesystem::path folder = kRepository / "arith" / "1";
  const Manifest manifest = ManifestOf(folder);
  std::vector<std::thread> threads;
  std::vector<std::string> told(8, "not run");
  for (size_t i = 0; i < told.size(); ++i) {
    threads.emplace_back([&, i] {
      told[i] = "";
      for (int round = 0; round < 20 && told[i].empty(); ++round) {
        const auto package =
            Package::Load(folder / manifest.package_path, manifest.model_name, Place{}, 1);
        told[i] = package.ok() ? RunArith(**package, static_cast<float>(round))
                               : package.status().message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(told, Each(""));
}

}  // namespace
}  // namespace aoti
