// Our own SHA-256 against the standard's examples, both ways of computing it.
#include "sha256.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <random>

#include "files.h"
#include "temp_folder.h"

namespace aoti {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Portable(const std::string& text) {
  Sha256 hash = Sha256::Portable();
  hash.Add(AsBytes(text));
  return hash.Finish();
}

TEST(Sha256, TheStandardsExamples) {
  const std::pair<std::string, const char*> examples[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
       "opqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& [text, digest] : examples) {
    EXPECT_EQ(Sha256Of(AsBytes(text)), digest);
    EXPECT_EQ(Portable(text), digest);
  }
}

// Lengths around a block and its padding, in pieces of every kind, agree with the portable way in
// one piece, which the examples above hold to the standard.
TEST(Sha256, PiecesMakeNoDifference) {
  std::mt19937 random(5);
  for (size_t length = 0; length < 300; ++length) {
    std::string text(length, '\0');
    for (char& c : text) c = static_cast<char>(random());
    Sha256 hash;
    for (size_t at = 0; at < length;) {
      const size_t piece = std::min<size_t>(length - at, random() % 130);
      hash.Add(AsBytes(text).subspan(at, piece));
      at += piece;
    }
    EXPECT_EQ(hash.Finish(), Portable(text)) << length;
  }
}

TEST(Sha256, LongFiles) {
  const TempFolder temp;
  std::string text(5'000'001, '\0');
  std::mt19937 random(6);
  for (char& c : text) c = static_cast<char>(random());
  WriteFile(temp.path() / "file", text);
  const auto file = Open(temp.path() / "file", O_RDONLY);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*Sha256OfFile(file->get(), "file"), Portable(text));
  const auto folder = Open(temp.path(), O_RDONLY);
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(Sha256OfFile(folder->get(), "it").status().message(),
            "it: cannot be read: Is a directory");
}

}  // namespace
}  // namespace aoti
