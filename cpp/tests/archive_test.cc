// Reading and unpacking of .pt2 archives.
#include "archive.h"

#include <gmock/gmock.h>

#include "files.h"
#include "temp_folder.h"
#include "zip_writer.h"

namespace aoti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string Refusal(const std::string& zip) {
  const auto entries = ReadEntries(AsBytes(zip));
  return entries.ok() ? "" : entries.status().message();
}

TEST(Archive, CrcIsTheStandardOne) {
  EXPECT_EQ(Crc32(0, AsBytes("123456789")), 0xcbf43926u);
  EXPECT_EQ(Crc32(0, {}), 0u);
  const std::string text(1000, 'x');
  EXPECT_EQ(Crc32(Crc32(0, AsBytes(text.substr(0, 333))), AsBytes(text.substr(333))),
            Crc32(0, AsBytes(text)));
}

TEST(Archive, UnpacksWithoutTheTopFolder) {
  for (const bool wide : {false, true}) {
    const TempFolder temp;
    const std::string code(3'000'000, 'c');  // more than one piece
    WriteFile(temp.path() / "m.pt2", Zip({{.name = "m/data/a.so", .data = code},
                                          {.name = "m/version", .data = "1"},
                                          {.name = "m/empty", .data = ""},
                                          {.name = "m/folder/"},
                                          {.name = "m/data-b/c", .data = "2"}},
                                         wide, "a comment"));
    std::filesystem::create_directory(temp.path() / "out");
    ASSERT_EQ(Unpack(temp.path() / "m.pt2", temp.path() / "out").message(), "");
    EXPECT_THAT(
        Everything(temp.path() / "out"),
        UnorderedElementsAre("data", "data/a.so", "version", "empty", "data-b", "data-b/c"));
    EXPECT_TRUE(ReadFile(temp.path() / "out" / "data" / "a.so") == code);
    EXPECT_EQ(ReadFile(temp.path() / "out" / "version"), "1");
    EXPECT_EQ(ReadFile(temp.path() / "out" / "empty"), "");
  }
}

TEST(Archive, EntriesSayWhereTheirBytesAre) {
  const std::string zip =
      Zip({{.name = "m/b", .data = "bytes of b"}, {.name = "m/a", .data = "a"}});
  const auto entries = ReadEntries(AsBytes(zip));
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].path, "a");
  EXPECT_EQ((*entries)[1].path, "b");
  EXPECT_EQ(zip.substr((*entries)[1].offset, (*entries)[1].bytes), "bytes of b");
  EXPECT_EQ((*entries)[1].crc, Crc32(0, AsBytes("bytes of b")));
}

struct Wrong {
  ZipItem item;
  const char* told;
};

const std::vector<Wrong>& Wrongs() {
  using namespace std::string_literals;
  static const std::vector<Wrong> wrongs{
      {{.name = "../../evil.so"}, "the entry '../../evil.so', which leaves the package's folder"},
      {{.name = "m/../../evil.so"}, "'m/../../evil.so', which leaves"},
      {{.name = "/etc/evil.so"}, "'/etc/evil.so', which leaves"},
      {{.name = "m\\..\\evil.so"}, "'m\\..\\evil.so', which leaves"},
      {{.name = "m//evil.so"}, "'m//evil.so', which leaves"},
      {{.name = "m/./evil.so"}, "'m/./evil.so', which leaves"},
      {{.name = "m/evil\0.so"s}, "'m/evil\\x00.so', which leaves"},
      {{.name = "m/../"}, "'m/../', which leaves"},
      {{.name = "/"}, "'/', which leaves"},
      {{.name = ""}, "'', which leaves"},
      {{.name = "evil.so"}, "'evil.so', which leaves"},
      {{.name = "other/evil.so"}, "'other/evil.so', which lies outside the top folder 'm/'"},
      {{.name = "m/link", .data = "/etc/passwd", .mode = S_IFLNK | 0777},
       "'m/link', which is not a plain file"},
      {{.name = "m/pipe", .mode = S_IFIFO | 0666}, "'m/pipe', which is not a plain file"},
      {{.name = "m/folder/", .mode = S_IFREG | 0666}, "'m/folder/', which is not a plain file"},
      {{.name = "m/good"}, "'good', which is there twice"},
      {{.name = "m/good/inner"}, "'good', which is both a file and a folder"},
      {{.name = "m/packed", .data = "123", .method = 8},
       "'m/packed', which is compressed (method 8), expected stored entries"},
      {{.name = "m/secret", .data = "123", .flags = 1}, "'m/secret', which is encrypted"},
      {{.name = "m/long", .data = "123", .bytes = 1 << 20}, "'m/long', which lies outside"},
      {{.name = "m/long", .data = "123", .bytes = 4, .packed = 3}, "which has two different sizes"},
      {{.name = "m/far", .data = "123", .header = 1 << 20}, "'m/far', which lies outside"},
      {{.name = "m/two", .data = "123", .header_name = "m/one"},
       "'m/two', which has another header"},
      {{.name = "m/two", .data = "123", .header_name = "m/three"},
       "'m/two', which has another header"},
  };
  return wrongs;
}

// Case 12: what an archive must not do, by name, and nothing written.
TEST(Archive, Case12WhatIsWrongIsRefusedByNameAndNothingWritten) {
  for (const Wrong& wrong : Wrongs()) {
    for (const bool wide : {false, true}) {
      const std::string zip = Zip({{.name = "m/good", .data = "1"}, wrong.item}, wide);
      EXPECT_THAT(Refusal(zip), HasSubstr(wrong.told));
      const TempFolder temp;
      WriteFile(temp.path() / "m.pt2", zip);
      std::filesystem::create_directories(temp.path() / "a" / "b" / "out");
      const Status status = Unpack(temp.path() / "m.pt2", temp.path() / "a" / "b" / "out");
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr((temp.path() / "m.pt2 ").string()));
      EXPECT_THAT(status.message(), HasSubstr(wrong.told));
      EXPECT_THAT(Everything(temp.path()), UnorderedElementsAre("m.pt2", "a", "a/b", "a/b/out"));
    }
  }
}

TEST(Archive, OverlappingEntriesAreRefused) {
  // Both point at the first one's header; its name must agree, so it is the same one twice.
  EXPECT_THAT(Refusal(Zip({{.name = "m/a", .data = "12345"}, {.name = "m/a", .header = 0}})),
              HasSubstr("'m/a', which overlaps 'm/a'"));
}

TEST(Archive, HugeSizesDoNotWrapAround) {
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 30, uint64_t{1} << 63}) {
    EXPECT_THAT(Refusal(Zip({{.name = "m/a", .data = "1", .bytes = size}}, true)),
                HasSubstr("'m/a', which lies outside the archive"));
    EXPECT_THAT(Refusal(Zip({{.name = "m/a", .data = "1", .header = size}}, true)),
                HasSubstr("'m/a', which lies outside the archive"));
  }
}

TEST(Archive, TooManyEntriesAreRefused) {
  std::string zip = Zip({{.name = "m/a", .data = "1"}}, true);
  const size_t at = zip.rfind("PK\6\6");
  ASSERT_NE(at, std::string::npos);
  for (const size_t field : {24, 32})
    zip.replace(at + field, 8, Little(kMostArchiveEntries + 1, 8));
  EXPECT_EQ(Refusal(zip), "has 100001 entries, more than a package can have");
}

// Every prefix, and every archive with one byte changed, is refused or means something inside it.
TEST(Archive, DamageIsNeverBelieved) {
  for (const bool wide : {false, true}) {
    const std::string zip = Zip(
        {{.name = "m/data/a.so", .data = std::string(50, 'c')}, {.name = "m/version", .data = "1"}},
        wide);
    ASSERT_EQ(Refusal(zip), "");
    for (size_t length = 0; length < zip.size(); ++length) {
      EXPECT_NE(Refusal(zip.substr(0, length)), "") << length;
    }
    for (size_t at = 0; at < zip.size(); ++at) {
      for (const int change : {1, 0x80, 0xff}) {
        std::string changed = zip;
        changed[at] = static_cast<char>(changed[at] ^ change);
        const auto entries = ReadEntries(AsBytes(changed));
        if (!entries.ok()) continue;
        for (const ArchiveEntry& entry : *entries) {
          EXPECT_LE(entry.bytes, changed.size());
          EXPECT_LE(entry.offset, changed.size() - entry.bytes);
          EXPECT_EQ(entry.path.find(".."), std::string::npos);
        }
      }
    }
  }
}

TEST(Archive, AChangedByteOfAFileIsFound) {
  const TempFolder temp;
  std::string zip = Zip({{.name = "m/a", .data = "12345678"}});
  zip.replace(zip.find("12345678"), 8, "12345679");
  WriteFile(temp.path() / "m.pt2", zip);
  std::filesystem::create_directory(temp.path() / "out");
  EXPECT_EQ(Unpack(temp.path() / "m.pt2", temp.path() / "out").message(),
            (temp.path() / "m.pt2").string() +
                " holds the entry 'a', which is damaged (its CRC differs): compile it again");
}

TEST(Archive, WhatIsNoArchiveIsRefused) {
  EXPECT_EQ(Refusal(""), "is not a .pt2 archive: it has no end record; it may be cut short");
  EXPECT_THAT(Refusal("not a zip"), HasSubstr("no end record"));
  EXPECT_THAT(Refusal(Zip({})), HasSubstr("it holds no file"));
  const TempFolder temp;
  const Status missing = Unpack(temp.path() / "none.pt2", temp.path());
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("none.pt2: cannot be opened: No such file"));
}

TEST(Archive, ALinkThatLiesInTheFolderIsNotFollowed) {
  const TempFolder temp;
  WriteFile(temp.path() / "m.pt2", Zip({{.name = "m/a", .data = "1"}}));
  WriteFile(temp.path() / "precious", "mine");
  std::filesystem::create_directory(temp.path() / "out");
  std::filesystem::create_symlink(temp.path() / "precious", temp.path() / "out" / "a");
  EXPECT_FALSE(Unpack(temp.path() / "m.pt2", temp.path() / "out").ok());
  EXPECT_EQ(ReadFile(temp.path() / "precious"), "mine");
}

}  // namespace
}  // namespace aoti
