// The files of a model's `weights` folder: the pointer that a push moves, the weights that it
// points to, and the status that this backend answers with. `aoti_pack/weights/files.py` is the
// other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "status.h"

namespace aoti {

inline constexpr std::string_view kWeightsFolder = "weights";
inline constexpr std::string_view kPointerFile = "current.json";
inline constexpr std::string_view kStatusFile = "status.json";

// What current.json says. The file of the weights is named after its digest, so no path travels.
struct WeightsPointer {
  int64_t version = 0;  // counts the pushes to this model version, from 1
  std::string sha256;
  uint64_t bytes = 0;
  std::string package_sha256;  // that the weights were checked for

  bool operator==(const WeightsPointer&) const = default;
  std::string FileName() const { return sha256 + ".safetensors"; }
};

// Reads the text of current.json. The error names the field.
Result<WeightsPointer> ParsePointer(std::string_view text);

// The content of current.json in `folder`; nothing when there is none.
Result<std::optional<std::string>> ReadPointer(const std::filesystem::path& folder);

// A file's whole content in this process's own memory: it cannot change or be cut short any more.
struct FileContent {
  std::unique_ptr<std::byte[]> memory;
  size_t size = 0;
  std::span<const std::byte> bytes() const { return {memory.get(), size}; }
};

// The weights that `pointer` points to, their length and digest verified. NOT_FOUND when the file
// is not there.
Result<FileContent> ReadWeights(const std::filesystem::path& folder, const WeightsPointer& pointer);

// What became of a push. `serving` is what answers requests now, 0 for the package's own weights.
struct WeightsStatus {
  WeightsPointer pushed;
  bool swapped = false;
  std::string message;  // why not
  int64_t serving = 0;
};

// Writes status.json into `folder` in one step. Fails where the folder cannot be written to.
Status WriteStatus(const std::filesystem::path& folder, const WeightsStatus& status);

}  // namespace aoti
