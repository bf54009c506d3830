// A `.pt2`: a zip archive, read with every entry checked first.
//
// The twin of aoti_pack/compiler/archive.py, with the same rules. Entries must be stored, as torch
// writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "status.h"

namespace aoti {

// A package is code, kernels and weights. What claims to hold more than this is not one.
inline constexpr uint64_t kMostArchiveBytes = uint64_t{64} << 30;
inline constexpr size_t kMostArchiveEntries = 100'000;

// A file in an archive.
struct ArchiveEntry {
  std::string path;     // without the top folder: "data/aotinductor/model/x.so"
  uint64_t offset = 0;  // of its bytes in the archive
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

// The files of an archive, by path. Nothing about the bytes is believed: every entry lies inside
// `archive`, apart from all others, and its path leads nowhere but below the folder that it is
// unpacked to. Folders are left out, and so is the one top folder.
//
// INVALID_ARG names the entry at fault: absolute paths, "..", "." and empty parts, backslashes,
// NUL, links, encrypted and compressed entries, several top folders, a path twice, a path that is a
// file and a folder, overlapping entries, sizes beyond the archive or the bounds above. Takes
// memory in proportion to the archive's directory, at most. Touches nothing but `archive`. The
// message goes on where the archive's name left off.
Result<std::vector<ArchiveEntry>> ReadEntries(std::span<const std::byte> archive);

// The same of the open file `file`. The message begins with `name` and ends with the mend.
Result<std::vector<ArchiveEntry>> ReadEntries(int file, const std::string& name);

// Unpacks `archive` into `folder`, which must be there and empty. Every file's CRC is checked, and
// every file and folder is written to disk. On an error `folder` may hold a part of the archive;
// nothing outside it is ever written.
Status Unpack(const std::filesystem::path& archive, const std::filesystem::path& folder);

// The archive's own check of bytes: CRC-32, of what came before (0 at first) and `bytes`.
uint32_t Crc32(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace aoti
