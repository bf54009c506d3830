// Answers cases of what the backend parses and checks, one after the other, for a fuzzer on the
// other end of two pipes (tests/fuzz).
//
// A case is a little-endian uint32 count of parts, then for each part its uint32 length and its
// bytes; the first part names the kind of case, the others are what it takes. The answer is the
// length and the bytes of a JSON object. Whatever a sanitizer or the fake server finds goes to
// stderr and ends the process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "archive.h"
#include "fake_server.h"
#include "json.h"
#include "manifest.h"
#include "model_config.h"
#include "plain_executor.h"
#include "request.h"
#include "runner.h"
#include "safetensors.h"
#include "sha256.h"
#include "statistics.h"

namespace aoti {
namespace {

using Parts = std::span<const std::string>;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "aoti_fuzz: %s\n", why.c_str());
  std::abort();
}

std::string_view CodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kInternal:
      return "internal";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kCancelled:
      return "cancelled";
  }
  Die("a status code that does not exist");
}

Json Refusal(const Status& status) {
  return {{"ok", false}, {"code", CodeName(status.code())}, {"message", status.message()}};
}

// What a manifest was read as.

Json Described(const std::vector<TensorSpec>& tensors) {
  Json list = Json::array();
  for (const TensorSpec& tensor : tensors) {
    list.push_back({{"name", tensor.name},
                    {"dtype", tensor.datatype->torch_name},
                    {"shape", tensor.ShapeText()},
                    {"mutated", tensor.mutated}});
  }
  return list;
}

Json AnswerManifest(Parts parts) {
  const Result<Manifest> manifest = ParseManifest(parts[0]);
  if (!manifest.ok()) return Refusal(manifest.status());
  Json symbols = Json::object();
  for (const Symbol& symbol : manifest->symbols) symbols[symbol.name] = {symbol.min, symbol.max};
  return {{"ok", true},
          {"name", manifest->name},
          {"wire", manifest->wire == Wire::kRows ? "rows" : "single"},
          {"symbols", symbols},
          {"inputs", Described(manifest->inputs)},
          {"outputs", Described(manifest->outputs)},
          {"row_limit", manifest->RowLimit()}};
}

Json AnswerConfig(Parts parts) {
  const Result<Manifest> manifest = ParseManifest(parts[0]);
  if (!manifest.ok()) Die("a case of kind config needs a valid manifest: " + parts[0]);
  const Result<ModelConfig> config = ParseModelConfig(parts[1]);
  if (!config.ok()) return Refusal(config.status());
  const Status status = CheckConfig(*config, *manifest);
  if (!status.ok()) return Refusal(status);
  return {{"ok", true}, {"instances", config->instances}, {"threads", config->threads}};
}

// Requests through the plain executor, over a model that gives each input back as the output of the
// same number.

constexpr std::byte kPoison{0xEE};  // the run of a batch that holds it in its first input throws

class EchoRunner final : public Runner {
 public:
  Result<std::vector<OutputTensor>> Run(std::span<const TensorRef> inputs) override {
    std::vector<OutputTensor> outputs;
    for (const TensorRef& input : inputs) {
      OutputTensor output;
      output.bytes = input.datatype->bytes;
      for (const int64_t size : input.shape) output.bytes *= static_cast<size_t>(size);
      const auto* from = static_cast<const std::byte*>(input.data);
      if (reinterpret_cast<uintptr_t>(from) % input.datatype->bytes != 0) {
        Die("a misaligned input reached the model");
      }
      auto memory = std::make_shared<std::vector<std::byte>>(from, from + output.bytes);
      if (outputs.empty() && std::find(memory->begin(), memory->end(), kPoison) != memory->end()) {
        throw std::runtime_error("poisoned");
      }
      output.data = memory->data();
      output.datatype = input.datatype;
      output.shape.assign(input.shape.begin(), input.shape.end());
      output.owner = std::move(memory);
      outputs.push_back(std::move(output));
    }
    return outputs;
  }
  Place place() const override { return {}; }
};

// The bytes of all buffers of a case stand one after the other; this hands them out.
class Bytes {
 public:
  explicit Bytes(std::string_view all) : left_(all) {}
  const char* Take(size_t count) {
    if (count > left_.size()) Die("a case has fewer bytes than its buffers");
    const char* start = left_.data();
    left_.remove_prefix(count);
    return start;
  }

 private:
  std::string_view left_;
};

std::unique_ptr<TRITONBACKEND_Request> Described(const Json& described, Bytes& bytes) {
  auto request = fake::NewRequest(described.at("outputs").get<std::vector<std::string>>());
  request->cancelled = described.at("cancelled").get<bool>();
  for (const Json& input : described.at("inputs")) {
    const auto buffers = input.at("buffers").get<std::vector<size_t>>();
    size_t total = 0;
    for (const size_t size : buffers) total += size;
    request->AddBytes(input.at("name").get<std::string>(),
                      static_cast<TRITONSERVER_DataType>(input.at("datatype").get<int>()),
                      input.at("shape").get<std::vector<int64_t>>(), bytes.Take(total), buffers,
                      input.at("misalign").get<size_t>());
    if (!input.at("claimed").is_null()) {
      request->inputs.back()->bytes = input.at("claimed").get<uint64_t>();
    }
  }
  return request;
}

Json Answered(const TRITONBACKEND_Request& request) {
  if (request.response == nullptr) Die("a request got no answer");
  if (!request.released) Die("a request was not released");
  if (request.reported_success + request.reported_failure != 1) Die("a request was not counted");
  if (request.response->failed) {
    return {{"ok", false}, {"code", request.response->code}, {"message", request.Error()}};
  }
  Json outputs = Json::array();
  for (const auto& output : request.response->outputs) {
    std::string hex;
    for (size_t i = 0; i < output->bytes; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto value = std::to_integer<unsigned>(output->memory[i]);
      hex += kDigits[value >> 4];
      hex += kDigits[value & 15];
    }
    outputs.push_back({{"name", output->name},
                       {"datatype", WireName(output->datatype)},
                       {"shape", output->shape},
                       {"hex", hex}});
  }
  return {{"ok", true}, {"outputs", outputs}};
}

Json AnswerRequests(Parts parts) {
  Result<Manifest> manifest = ParseManifest(parts[0]);
  if (!manifest.ok()) Die("a case of kind requests needs a valid manifest: " + parts[0]);
  TRITONBACKEND_ModelInstance instance;
  const Statistics statistics(&instance);
  PlainExecutor executor("fuzzed", *manifest, std::make_shared<EchoRunner>(), statistics);
  Bytes bytes(parts[2]);
  std::vector<std::unique_ptr<TRITONBACKEND_Request>> requests;
  std::vector<Request> owned;
  for (const Json& described : Json::parse(parts[1])) {
    requests.push_back(Described(described, bytes));
    owned.emplace_back(requests.back().get(), statistics);
  }
  executor.Execute(owned);
  owned.clear();
  Json answers = Json::array();
  for (const auto& request : requests) {
    answers.push_back(Answered(*request));
    request->response.reset();
  }
  if (fake::LiveObjects() != 0) Die("errors or responses were left behind");
  Json runs = Json::array();
  for (const BatchReport& run : instance.runs) runs.push_back(run.rows);
  return {{"ok", true}, {"answers", answers}, {"runs", runs}};
}

// Archives.

Json AnswerZip(Parts parts) {
  std::ifstream stream(parts[0], std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream),
                            std::istreambuf_iterator<char>()};
  const Result<std::vector<ArchiveEntry>> entries =
      ReadEntries(std::as_bytes(std::span(content.data(), content.size())));
  const Status unpacked = Unpack(parts[0], parts[1]);
  if (!entries.ok()) {
    if (unpacked.ok()) Die("unpacked what cannot be listed: " + entries.status().message());
    return Refusal(entries.status());
  }
  if (!unpacked.ok()) return Refusal(unpacked);
  Json paths = Json::array();
  for (const ArchiveEntry& entry : *entries) paths.push_back(entry.path);
  return {{"ok", true}, {"paths", paths}};
}

Json AnswerSafetensors(Parts parts) {
  const auto tensors = ReadSafetensors(std::as_bytes(std::span(parts[0])));
  if (!tensors.ok()) return Refusal(tensors.status());
  Json list = Json::array();
  for (const SafeTensor& tensor : *tensors) {
    list.push_back({{"name", tensor.name},
                    {"dtype", tensor.datatype->torch_name},
                    {"shape", tensor.shape},
                    {"sha256", Sha256Of(tensor.data)}});
  }
  return {{"ok", true}, {"tensors", list}};
}

struct Kind {
  std::string_view name;
  size_t parts;
  Json (*answer)(Parts);
};

constexpr std::array kKinds{
    Kind{"manifest", 1, AnswerManifest},  // the manifest's text
    Kind{"config", 2, AnswerConfig},      // a valid manifest; config.pbtxt as JSON
    // A valid manifest; a list of requests, which come to one Execute; the bytes of their buffers.
    Kind{"requests", 3, AnswerRequests},
    Kind{"zip", 2, AnswerZip},  // the paths of an archive and of an empty folder to unpack it into
    Kind{"safetensors", 1, AnswerSafetensors},  // the content of a file
};

// The two pipes.

bool ReadBytes(void* to, size_t count) {
  return std::fread(to, 1, count, stdin) == count;
}

uint32_t ReadNumber() {
  std::array<unsigned char, 4> raw;
  if (!ReadBytes(raw.data(), raw.size())) Die("a case broke off");
  return raw[0] | raw[1] << 8 | raw[2] << 16 | static_cast<uint32_t>(raw[3]) << 24;
}

// The parts of the next case; none at the end of the input.
std::vector<std::string> ReadCase() {
  const int first = std::getc(stdin);
  if (first == EOF) return {};
  std::ungetc(first, stdin);
  std::vector<std::string> parts(ReadNumber());
  for (std::string& part : parts) {
    part.resize(ReadNumber());
    if (!ReadBytes(part.data(), part.size())) Die("a case broke off");
  }
  if (parts.empty()) Die("a case without a kind");
  return parts;
}

void WriteAnswer(std::FILE* out, const Json& answer) {
  const std::string text = answer.dump(-1, ' ', true, Json::error_handler_t::replace);
  const auto size = static_cast<uint32_t>(text.size());
  for (int shift = 0; shift < 32; shift += 8) std::putc(static_cast<int>(size >> shift & 255), out);
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

Json Answer(const std::vector<std::string>& parts) {
  for (const Kind& kind : kKinds) {
    if (kind.name != parts[0]) continue;
    if (parts.size() != kind.parts + 1) Die("a case of kind " + parts[0] + " has other parts");
    return kind.answer(Parts(parts).subspan(1));
  }
  Die("no kind of case is called " + parts[0]);
}

int Main() {
  // Answers alone go to the pipe: what else would print to stdout is for stderr.
  std::FILE* out = fdopen(dup(STDOUT_FILENO), "wb");
  if (out == nullptr || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) Die("no pipe to answer on");
  GTEST_FLAG_SET(break_on_failure, true);  // the fake server's findings are gtest failures
  for (auto parts = ReadCase(); !parts.empty(); parts = ReadCase()) WriteAnswer(out, Answer(parts));
  std::fclose(out);
  return 0;
}

}  // namespace
}  // namespace aoti

int main() {
  return aoti::Main();
}
