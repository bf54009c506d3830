#include "safetensors.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <random>

#include "weights_files_for_tests.h"

namespace aoti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& file) {
  const auto read = ReadSafetensors(Bytes(file));
  return read.ok() ? "" : read.status().message();
}

std::string Good() {
  return FileBuilder()
      .Add<float>("b", "F32", {2, 2}, {1, 2, 3, 4})
      .Add<int64_t>("a", "I64", {}, {7})
      .Add<float>("none", "F32", {0, 3}, {})
      .Add<uint16_t>("half", "BF16", {3}, {1, 2, 3})
      .Text();
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = Good();
  const auto read = ReadSafetensors(Bytes(file));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 4u);
  const SafeTensor& b = (*read)[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.datatype, FindDatatype("float32"));
  EXPECT_THAT(b.shape, ElementsAre(2, 2));
  std::vector<float> values(4);
  std::memcpy(values.data(), b.data.data(), b.data.size());
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ((*read)[1].name, "a");
  EXPECT_TRUE((*read)[1].shape.empty());
  EXPECT_EQ((*read)[2].name, "none");
  EXPECT_EQ((*read)[2].data.size(), 0u);
  EXPECT_EQ((*read)[3].datatype, FindDatatype("bfloat16"));
}

TEST(Safetensors, TakesMetadataAndAPaddedHeader) {
  EXPECT_EQ(ErrorOf(FileBuilder::WithHeader(R"({"__metadata__":{"format":"pt"}}    )", "")), "");
  EXPECT_EQ(ErrorOf(FileBuilder::WithHeader("{}", "")), "");
}

struct Spoiled {
  std::string header;
  std::string data;
  const char* told;
};

class SpoiledFile : public ::testing::TestWithParam<Spoiled> {};

TEST_P(SpoiledFile, IsRefused) {
  EXPECT_THAT(ErrorOf(FileBuilder::WithHeader(GetParam().header, GetParam().data)),
              HasSubstr(GetParam().told));
}

const std::string kFour(4, '\0');
const std::string kEight(8, '\0');

INSTANTIATE_TEST_SUITE_P(
    Headers, SpoiledFile,
    ::testing::Values(
        Spoiled{"", "", "the header is not JSON"}, Spoiled{"[]", "", "no JSON object"},
        Spoiled{"{\"a\":1}", "", "tensor 'a'.dtype: expected a string"},
        Spoiled{R"({"__metadata__":{"a":1}})", "", "__metadata__ is no object of strings"},
        Spoiled{R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", kFour,
                "tensor 'a' has the unknown dtype 'F8_E4M3'"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", kFour,
                "sizes of 0 or more"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", kFour,
                "tensor 'a' of F32 [2] has 4 bytes of data"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", "",
                "has 0 bytes of data"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", kFour,
                "two rising offsets within the 4 bytes"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", kFour,
                "two rising offsets"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", kFour,
                "two rising offsets"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", kFour,
                "other fields than"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                kFour, "tensor 'a' stands twice"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                kFour, "does not begin where the one before it ends"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", kEight,
                "does not begin where"},
        Spoiled{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", kEight,
                "4 bytes after its last tensor"},
        Spoiled{std::string(100000, '[') + std::string(100000, ']'), "", "nested too deeply"}));

TEST(Safetensors, RefusesALengthBeyondTheFile) {
  EXPECT_THAT(ErrorOf("1234567"), HasSubstr("8 bytes or more, this one 7"));
  EXPECT_THAT(ErrorOf(std::string(8, '\xff')), HasSubstr("no safetensors file, or cut off"));
  EXPECT_THAT(ErrorOf(Good().substr(0, 20)), HasSubstr("no safetensors file, or cut off"));
}

// Whatever comes in, what is read lies inside the file and fills its data.
TEST(Safetensors, DamagedFilesAreReadSafely) {
  const std::string good = Good();
  std::mt19937 random(7);  // NOLINT: the same cases each time
  int read_well = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      switch (random() % 3) {
        case 0:
          file[random() % file.size()] = static_cast<char>(random());
          break;
        case 1:
          file.resize(1 + random() % file.size());
          break;
        default:
          file.insert(random() % file.size(), 1, "[]{},:\"0\\ "[random() % 10]);
      }
    }
    // Memory of its own, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> bytes(Bytes(file).begin(), Bytes(file).end());
    const auto read = ReadSafetensors(bytes);
    if (!read.ok()) {
      EXPECT_FALSE(read.status().message().empty());
      continue;
    }
    ++read_well;
    size_t total = 0;
    for (const SafeTensor& tensor : *read) {
      ASSERT_GE(tensor.data.data(), bytes.data());
      ASSERT_LE(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
      total += tensor.data.size();
    }
    ASSERT_LT(total, bytes.size());
  }
  EXPECT_GT(read_well, 100);  // names and values may change
}

}  // namespace
}  // namespace aoti
