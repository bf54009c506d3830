// Files of weights as a push writes them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "json.h"
#include "sha256.h"
#include "weights_files.h"

namespace aoti {

// A safetensors file in the making.
class FileBuilder {
 public:
  template <typename T>
  FileBuilder& Add(const std::string& name, const char* dtype, const std::vector<int64_t>& shape,
                   const std::vector<T>& values) {
    const size_t begin = data_.size();
    data_.resize(begin + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(data_.data() + begin, values.data(), data_.size() - begin);
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }
  FileBuilder& Add(const std::string& name, const std::vector<int64_t>& shape, float value) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    return Add(name, "F32", shape, std::vector<float>(count, value));
  }

  std::string Text() const { return WithHeader(header_.dump(), data_); }

  static std::string WithHeader(const std::string& header, const std::string& data) {
    std::string text(8, '\0');
    for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
    return text + header + data;
  }

 private:
  Json header_ = Json::object();
  std::string data_;
};

inline std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A version's folder of a model, for the life of a test.
class VersionFolder {
 public:
  VersionFolder()
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("aoti_weights_" + std::to_string(getpid())) / "1") {
    std::filesystem::remove_all(path_.parent_path());
    std::filesystem::create_directories(weights());
  }
  ~VersionFolder() { std::filesystem::remove_all(path_.parent_path()); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path weights() const { return path_ / kWeightsFolder; }

  // What `aoti-pack weights push` leaves: the weights, then the pointer in one step.
  void Push(int64_t version, const std::string& file, const std::string& package) const {
    const std::string digest = Sha256Of(Bytes(file));
    std::ofstream(weights() / (digest + ".safetensors"), std::ios::binary) << file;
    Point({{"schema", 1},
           {"version", version},
           {"sha256", digest},
           {"bytes", file.size()},
           {"package_sha256", package}});
  }
  void Point(const Json& pointer) const {
    std::ofstream(weights() / "new.json") << pointer;
    std::filesystem::rename(weights() / "new.json", weights() / kPointerFile);
  }

  // status.json, null where there is none.
  Json ReadStatus() const {
    std::ifstream stream(weights() / kStatusFile);
    return stream ? Json::parse(std::string{std::istreambuf_iterator<char>(stream), {}}) : Json();
  }

  // Waits for the answer to a push.
  Json AwaitStatus(int64_t version) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      Json status = ReadStatus();
      if (status.is_object() && status["version"] == version) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "no answer to version " << version;
    return Json::object();
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace aoti
