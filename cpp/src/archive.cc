#include "archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "files.h"

namespace aoti {
namespace {

// The signatures and lengths of a zip archive's records, from its public description.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kLocalBytes = 30;
constexpr size_t kCentralBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kLongestComment = 65535;
constexpr uint32_t kIn64 = 0xffffffff;  // the value stands in the zip64 record
constexpr uint16_t kIn64Short = 0xffff;
constexpr uint16_t kZip64Extra = 1;
constexpr uint16_t kEncrypted = 1;
constexpr size_t kMostDirectoryBytes = size_t{32} << 20;
constexpr size_t kPiece = 1 << 20;

using Bytes = std::span<const std::byte>;

// Where an archive's bytes come from.
struct Source {
  uint64_t size = 0;
  // Exactly `bytes` bytes at `offset`. Requires that they lie inside `size`.
  std::function<Result<std::vector<std::byte>>(uint64_t offset, size_t bytes)> read;
};

template <typename T>
T Number(Bytes bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(std::to_integer<T>(bytes[at + i]) << (8 * i));
  }
  return value;
}

uint16_t Short(Bytes bytes, size_t at) {
  return Number<uint16_t>(bytes, at);
}
uint32_t Int(Bytes bytes, size_t at) {
  return Number<uint32_t>(bytes, at);
}
uint64_t Long(Bytes bytes, size_t at) {
  return Number<uint64_t>(bytes, at);
}

std::string_view Text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status Damaged(const std::string& what) {
  return InvalidArgument("is not a .pt2 archive: " + what);
}

Status Refused(std::string_view entry, const std::string& what) {
  return InvalidArgument("holds the entry " + Quoted(entry) + ", which " + what);
}

// The archive's directory: what lists its entries.
struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

Result<Directory> FindDirectory(const Source& source) {
  const size_t tail_bytes =
      static_cast<size_t>(std::min<uint64_t>(source.size, kEndBytes + kLongestComment));
  AOTI_ASSIGN_OR_RETURN(const std::vector<std::byte> tail,
                        source.read(source.size - tail_bytes, tail_bytes));
  // The last place where an end record and its comment fill the rest of the file.
  std::optional<size_t> found;
  for (size_t at = tail_bytes; at-- > 0 && !found;) {
    const size_t left = tail_bytes - at;
    if (left >= kEndBytes && Int(tail, at) == kEnd && Short(tail, at + 20) == left - kEndBytes) {
      found = at;
    }
  }
  if (!found) return Damaged("it has no end record; it may be cut short");
  const Bytes end = Bytes(tail).subspan(*found, kEndBytes);
  Directory directory{Int(end, 16), Int(end, 12), Short(end, 10)};
  uint64_t limit = source.size - tail_bytes + *found;  // where the directory must end
  uint64_t disks = Short(end, 4) | Short(end, 6) | (Short(end, 8) ^ Short(end, 10));
  if (limit >= kLocatorBytes) {
    AOTI_ASSIGN_OR_RETURN(const std::vector<std::byte> locator,
                          source.read(limit - kLocatorBytes, kLocatorBytes));
    if (Int(locator, 0) == kEnd64Locator) {
      const uint64_t at = Long(locator, 8);
      if (at > limit - kLocatorBytes || limit - kLocatorBytes - at < kEnd64Bytes) {
        return Damaged("its zip64 end record lies outside it");
      }
      AOTI_ASSIGN_OR_RETURN(const std::vector<std::byte> end64, source.read(at, kEnd64Bytes));
      if (Int(end64, 0) != kEnd64) return Damaged("it has no zip64 end record");
      const Directory wide{Long(end64, 48), Long(end64, 40), Long(end64, 32)};
      const auto differs = [](uint64_t narrow, uint64_t told, uint64_t missing) {
        return narrow != missing && narrow != told;
      };
      if (differs(directory.offset, wide.offset, kIn64) ||
          differs(directory.bytes, wide.bytes, kIn64) ||
          differs(directory.entries, wide.entries, kIn64Short)) {
        return Damaged("its two end records contradict each other");
      }
      directory = wide;
      limit = at;
      disks = Int(end64, 16) | Int(end64, 20) | (Long(end64, 24) ^ Long(end64, 32));
    }
  }
  if (disks != 0) return Damaged("it is one part of several");
  if (directory.offset > limit || limit - directory.offset != directory.bytes) {
    return Damaged("its directory does not lie where its end record says");
  }
  if (directory.entries > kMostArchiveEntries || directory.bytes > kMostDirectoryBytes) {
    return InvalidArgument("has " + std::to_string(directory.entries) +
                           " entries, more than a package can have");
  }
  return directory;
}

// An entry as the directory has it.
struct Listed {
  std::string_view name;
  uint64_t header = 0;  // the offset of its local header
  uint64_t bytes = 0;
  uint32_t crc = 0;
  bool folder = false;
};

// The sizes and the offset that do not fit 32 bits, which the zip64 extra field holds in this
// order.
Status ReadZip64(Bytes extra, std::string_view name, std::array<uint64_t*, 3> values) {
  while (extra.size() >= 4) {
    const uint16_t kind = Short(extra, 0);
    const size_t length = Short(extra, 2);
    if (length > extra.size() - 4) break;
    Bytes field = extra.subspan(4, length);
    extra = extra.subspan(4 + length);
    if (kind != kZip64Extra) continue;
    for (uint64_t* value : values) {
      if (*value != kIn64) continue;
      if (field.size() < 8) return Refused(name, "lacks its zip64 sizes");
      *value = Long(field, 0);
      field = field.subspan(8);
    }
    return {};
  }
  return Refused(name, "lacks its zip64 sizes");
}

Status CheckPath(std::string_view name) {
  const std::string_view path = name.ends_with('/') ? name.substr(0, name.size() - 1) : name;
  bool inside = path.find('\\') == path.npos && path.find('\0') == path.npos;
  for (size_t start = 0; inside && start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string_view part = path.substr(start, end - start);
    inside = !part.empty() && part != "." && part != "..";
    start = end + 1;
  }
  if (inside && (name.size() != path.size() || path.find('/') != path.npos)) return {};
  return Refused(name, "leaves the package's folder");
}

// Reads the entry at the start of `directory` and moves past it.
Result<Listed> ReadListed(Bytes& directory) {
  if (directory.size() < kCentralBytes || Int(directory, 0) != kCentralHeader) {
    return Damaged("its directory is damaged");
  }
  const size_t name_bytes = Short(directory, 28);
  const size_t extra_bytes = Short(directory, 30);
  const size_t all = kCentralBytes + name_bytes + extra_bytes + Short(directory, 32);
  if (directory.size() < all) return Damaged("its directory is damaged");
  const Bytes header = directory.first(all);
  directory = directory.subspan(all);
  Listed entry;
  entry.name = Text(header.subspan(kCentralBytes, name_bytes));
  AOTI_RETURN_IF_ERROR(CheckPath(entry.name));
  entry.folder = entry.name.ends_with('/');
  entry.crc = Int(header, 16);
  entry.header = Int(header, 42);
  entry.bytes = Int(header, 24);
  uint64_t packed = Int(header, 20);
  if (entry.bytes == kIn64 || packed == kIn64 || entry.header == kIn64) {
    AOTI_RETURN_IF_ERROR(ReadZip64(header.subspan(kCentralBytes + name_bytes, extra_bytes),
                                   entry.name, {&entry.bytes, &packed, &entry.header}));
  }
  const mode_t kind = (Int(header, 38) >> 16) & S_IFMT;
  if (kind != 0 && kind != (entry.folder ? S_IFDIR : S_IFREG)) {
    return Refused(entry.name, "is not a plain file");
  }
  if ((Short(header, 8) & kEncrypted) != 0) return Refused(entry.name, "is encrypted");
  if (const int method = Short(header, 10); method != 0) {
    return Refused(entry.name, "is compressed (method " + std::to_string(method) +
                                   "), expected stored entries, as torch writes them");
  }
  if (packed != entry.bytes || (entry.folder && entry.bytes != 0)) {
    return Refused(entry.name, "has two different sizes");
  }
  if (Short(header, 34) != 0) return Refused(entry.name, "lies in another archive");
  return entry;
}

// Where the bytes of `entry` start: behind its own header, which must agree with the directory.
Result<uint64_t> FindData(const Source& source, const Listed& entry, uint64_t limit) {
  const auto outside = [&entry] { return Refused(entry.name, "lies outside the archive"); };
  if (entry.header > limit || limit - entry.header < kLocalBytes) return outside();
  AOTI_ASSIGN_OR_RETURN(const std::vector<std::byte> header,
                        source.read(entry.header, kLocalBytes));
  const uint64_t head = uint64_t{kLocalBytes} + Short(header, 26) + Short(header, 28);
  const uint64_t left = limit - entry.header;
  if (left < head || left - head < entry.bytes) return outside();
  if (Int(header, 0) != kLocalHeader || Short(header, 8) != 0 ||
      Short(header, 26) != entry.name.size()) {
    return Refused(entry.name, "has another header than the directory says");
  }
  AOTI_ASSIGN_OR_RETURN(const std::vector<std::byte> name,
                        source.read(entry.header + kLocalBytes, entry.name.size()));
  if (Text(name) != entry.name) {
    return Refused(entry.name, "has another header than the directory says");
  }
  return entry.header + head;
}

// Every name once, no file where a folder must be, one top folder, which is taken off.
Status SettlePaths(std::vector<ArchiveEntry>& entries) {
  if (entries.empty()) return Damaged("it holds no file");
  const std::string top = entries[0].path.substr(0, entries[0].path.find('/') + 1);
  for (ArchiveEntry& entry : entries) {
    if (!entry.path.starts_with(top)) {
      return Refused(entry.path, "lies outside the top folder " + Quoted(top));
    }
    entry.path.erase(0, top.size());
  }
  std::sort(entries.begin(), entries.end(),
            [](const ArchiveEntry& a, const ArchiveEntry& b) { return a.path < b.path; });
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& path = entries[i].path;
    if (i > 0 && entries[i - 1].path == path) return Refused(path, "is there twice");
    // What lies below a folder is together in the order, but not right behind it: "a", "a-b",
    // "a/c".
    const std::string below = path + '/';
    const auto inner = std::lower_bound(
        entries.begin(), entries.end(), below,
        [](const ArchiveEntry& entry, const std::string& text) { return entry.path < text; });
    if (inner != entries.end() && inner->path.starts_with(below)) {
      return Refused(path, "is both a file and a folder");
    }
  }
  return {};
}

Result<std::vector<ArchiveEntry>> ReadFrom(const Source& source) {
  AOTI_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(source));
  AOTI_ASSIGN_OR_RETURN(const std::vector<std::byte> text,
                        source.read(directory.offset, static_cast<size_t>(directory.bytes)));
  std::vector<ArchiveEntry> entries;
  std::vector<std::pair<uint64_t, uint64_t>> taken;  // what each entry and its header cover
  std::vector<std::string_view> names;
  Bytes rest(text);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    AOTI_ASSIGN_OR_RETURN(const Listed entry, ReadListed(rest));
    AOTI_ASSIGN_OR_RETURN(const uint64_t data, FindData(source, entry, directory.offset));
    taken.emplace_back(entry.header, data + entry.bytes);
    names.push_back(entry.name);
    if (!entry.folder) {
      entries.push_back({std::string(entry.name), data, entry.bytes, entry.crc});
    }
  }
  if (!rest.empty()) return Damaged("its directory holds more than its entries");
  std::vector<size_t> order(taken.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return taken[a] < taken[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (taken[order[i]].first < taken[order[i - 1]].second) {
      return Refused(names[order[i]], "overlaps " + Quoted(names[order[i - 1]]));
    }
  }
  // Apart and inside, so their sum is at most the archive's size.
  if (directory.offset > kMostArchiveBytes) {
    return InvalidArgument("has " + std::to_string(directory.offset) +
                           " bytes, more than a package can have");
  }
  AOTI_RETURN_IF_ERROR(SettlePaths(entries));
  return entries;
}

constexpr auto kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xedb88320u : 0);
    tables[0][i] = value;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 255];
    }
  }
  return tables;
}();

Status Copy(int archive, const ArchiveEntry& entry, const std::filesystem::path& to,
            const std::string& name, std::vector<std::byte>& piece) {
  // O_EXCL and O_NOFOLLOW: the folder is ours and empty, so anything that lies there is a trap.
  AOTI_ASSIGN_OR_RETURN(const File out, Open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
  uint32_t crc = 0;
  for (uint64_t done = 0; done < entry.bytes;) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(piece.size(), entry.bytes - done));
    AOTI_ASSIGN_OR_RETURN(const size_t got, ReadSome(archive, entry.offset + done,
                                                     std::span(piece).first(wanted), name));
    if (got == 0) return InvalidArgument(name + " was cut short while it was read");
    const Bytes bytes = Bytes(piece).first(got);
    crc = Crc32(crc, bytes);
    AOTI_RETURN_IF_ERROR(WriteAll(out.get(), bytes, to.string()));
    done += got;
  }
  if (crc != entry.crc) {
    const Status damaged = Refused(entry.path, "is damaged (its CRC differs): compile it again");
    return Status(damaged.code(), name + " " + damaged.message());
  }
  if (::fsync(out.get()) != 0) return ErrnoStatus(to.string(), "cannot be written to disk");
  return {};
}

}  // namespace

uint32_t Crc32(uint32_t crc, std::span<const std::byte> bytes) {
  const auto& t = kCrcTables;
  crc = ~crc;
  while (bytes.size() >= 8) {
    const uint32_t low = crc ^ Int(bytes, 0);
    const uint32_t high = Int(bytes, 4);
    crc = t[7][low & 255] ^ t[6][(low >> 8) & 255] ^ t[5][(low >> 16) & 255] ^ t[4][low >> 24] ^
          t[3][high & 255] ^ t[2][(high >> 8) & 255] ^ t[1][(high >> 16) & 255] ^ t[0][high >> 24];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ t[0][(crc ^ std::to_integer<uint32_t>(byte)) & 255];
  }
  return ~crc;
}

Result<std::vector<ArchiveEntry>> ReadEntries(std::span<const std::byte> archive) {
  const Source source{archive.size(), [archive](uint64_t offset, size_t bytes) {
                        const Bytes part = archive.subspan(static_cast<size_t>(offset), bytes);
                        return Result(std::vector<std::byte>(part.begin(), part.end()));
                      }};
  return ReadFrom(source);
}

Result<std::vector<ArchiveEntry>> ReadEntries(int file, const std::string& name) {
  struct stat status;
  if (::fstat(file, &status) != 0) return ErrnoStatus(name, "cannot be read");
  const auto read = [file, &name](uint64_t offset, size_t bytes) -> Result<std::vector<std::byte>> {
    std::vector<std::byte> piece(bytes);
    for (size_t done = 0; done < bytes;) {
      AOTI_ASSIGN_OR_RETURN(const size_t got,
                            ReadSome(file, offset + done, std::span(piece).subspan(done), name));
      if (got == 0) return InvalidArgument("was cut short while it was read");
      done += got;
    }
    return piece;
  };
  auto entries = ReadFrom({static_cast<uint64_t>(status.st_size), read});
  if (entries.ok()) return entries;
  return Status(entries.status().code(),
                name + " " + entries.status().message() + ": compile it again");
}

Status Unpack(const std::filesystem::path& archive, const std::filesystem::path& folder) {
  const std::string name = archive.string();
  AOTI_ASSIGN_OR_RETURN(const File file, Open(archive, O_RDONLY));
  AOTI_ASSIGN_OR_RETURN(const std::vector<ArchiveEntry> entries, ReadEntries(file.get(), name));
  std::set<std::filesystem::path> folders{folder};
  std::vector<std::byte> piece(kPiece);
  for (const ArchiveEntry& entry : entries) {
    const std::filesystem::path to = folder / entry.path;
    for (auto parent = to.parent_path(); folders.insert(parent).second;) {
      parent = parent.parent_path();
    }
    std::error_code error;
    std::filesystem::create_directories(to.parent_path(), error);
    if (error) return Internal(to.parent_path().string() + ": " + error.message());
    AOTI_RETURN_IF_ERROR(Copy(file.get(), entry, to, name, piece));
  }
  for (const std::filesystem::path& written : folders) AOTI_RETURN_IF_ERROR(Sync(written));
  return {};
}

}  // namespace aoti
