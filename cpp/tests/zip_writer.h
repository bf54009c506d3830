// Zip archives as a test wants them, right or wrong.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "archive.h"

namespace aoti {

struct ZipItem {
  std::string name = "";
  std::string data = "";
  // What the directory says instead of the truth.
  uint32_t mode = 0;
  uint16_t method = 0;
  uint16_t flags = 0;
  std::optional<uint64_t> bytes = std::nullopt;
  std::optional<uint64_t> packed = std::nullopt;
  std::optional<uint32_t> crc = std::nullopt;
  std::optional<uint64_t> header = std::nullopt;
  std::optional<std::string> header_name = std::nullopt;  // in the local header
};

inline std::string Little(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 255);
  return text;
}

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// With `wide` every size and offset stands in zip64 records.
inline std::string Zip(const std::vector<ZipItem>& items, bool wide = false,
                       const std::string& comment = "") {
  std::string zip;
  std::string directory;
  for (const ZipItem& item : items) {
    const uint64_t header = item.header.value_or(zip.size());
    const std::string crc = Little(item.crc.value_or(Crc32(0, AsBytes(item.data))), 4);
    const std::string name = item.header_name.value_or(item.name);
    zip += "PK\3\4" + Little(20, 2) + Little(item.flags, 2) + Little(item.method, 2) +
           Little(0, 4) + crc + Little(item.data.size(), 4) + Little(item.data.size(), 4) +
           Little(name.size(), 2) + Little(7, 2) + name + "FB" + Little(3, 2) + "pad" + item.data;
    const uint64_t bytes = item.bytes.value_or(item.data.size());
    const uint64_t packed = item.packed.value_or(bytes);
    const uint64_t none = 0xffffffff;
    std::string extra;
    if (wide) {
      extra =
          Little(1, 2) + Little(24, 2) + Little(bytes, 8) + Little(packed, 8) + Little(header, 8);
    }
    directory += "PK\1\2" + Little(0x031e, 2) + Little(20, 2) + Little(item.flags, 2) +
                 Little(item.method, 2) + Little(0, 4) + crc + Little(wide ? none : packed, 4) +
                 Little(wide ? none : bytes, 4) + Little(item.name.size(), 2) +
                 Little(extra.size(), 2) + Little(0, 2) + Little(0, 2) + Little(0, 2) +
                 Little(uint64_t{item.mode} << 16, 4) + Little(wide ? none : header, 4) +
                 item.name + extra;
  }
  const uint64_t start = zip.size();
  zip += directory;
  if (wide) {
    const uint64_t at = zip.size();
    zip += "PK\6\6" + Little(44, 8) + Little(45, 2) + Little(45, 2) + Little(0, 4) + Little(0, 4) +
           Little(items.size(), 8) + Little(items.size(), 8) + Little(directory.size(), 8) +
           Little(start, 8);
    zip += "PK\6\7" + Little(0, 4) + Little(at, 8) + Little(1, 4);
  }
  zip += "PK\5\6" + Little(0, 2) + Little(0, 2) + Little(wide ? 0xffff : items.size(), 2) +
         Little(wide ? 0xffff : items.size(), 2) + Little(wide ? 0xffffffff : directory.size(), 4) +
         Little(wide ? 0xffffffff : start, 4) + Little(comment.size(), 2) + comment;
  return zip;
}

}  // namespace aoti
