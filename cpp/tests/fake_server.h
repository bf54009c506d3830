// A server in this process: the part of the ABI that the backend calls, with everything that it
// does recorded.
//
// Misuse of the ABI (a second response, a request touched after its release) fails the running
// test.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "statistics.h"
#include "triton_abi.h"

struct TRITONBACKEND_Input {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  // as told to the backend
  std::vector<std::span<const std::byte>> buffers;
  std::vector<std::unique_ptr<std::byte[]>> memory;
};

struct TRITONBACKEND_Output {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::unique_ptr<std::byte[]> memory;
  size_t bytes = 0;

  template <typename T>
  std::vector<T> Values() const {
    std::vector<T> values(bytes / sizeof(T));
    if (bytes > 0) std::memcpy(values.data(), memory.get(), bytes);
    return values;
  }
};

struct FakeParameter {
  std::string key;
  std::variant<std::string, int64_t, bool, double> value;  // in the order of the server's types
};

struct TRITONBACKEND_Request {
  std::vector<std::unique_ptr<TRITONBACKEND_Input>> inputs;
  std::vector<FakeParameter> parameters;
  std::vector<std::string> outputs;  // those that are asked for
  bool cancelled = false;

  // What became of it.
  std::unique_ptr<TRITONBACKEND_Response> response;
  bool released = false;
  int reported_success = 0;
  int reported_failure = 0;

  // An input of `values` in one buffer per entry of `split` (element counts; all in one when
  // empty), each at an address that is off by `misalign` bytes.
  template <typename T>
  TRITONBACKEND_Request& Add(std::string name, TRITONSERVER_DataType datatype,
                             std::vector<int64_t> shape, const std::vector<T>& values,
                             std::vector<size_t> split = {}, size_t misalign = 0) {
    if (split.empty()) split = {values.size()};
    std::vector<size_t> sizes;
    for (const size_t count : split) sizes.push_back(count * sizeof(T));
    AddBytes(std::move(name), datatype, std::move(shape), values.data(), sizes, misalign);
    return *this;
  }

  void AddBytes(std::string name, TRITONSERVER_DataType datatype, std::vector<int64_t> shape,
                const void* data, const std::vector<size_t>& buffers, size_t misalign);

  // Require that the backend has answered without an error, with the output `name`.
  const TRITONBACKEND_Output& Output(std::string_view name) const;
  // The error that the backend answered with: its message, "" for none.
  std::string Error() const;
  TRITONSERVER_Error_Code ErrorCode() const;
};

struct TRITONBACKEND_Response {
  TRITONBACKEND_Request* request = nullptr;
  std::vector<std::unique_ptr<TRITONBACKEND_Output>> outputs;
  bool failed = false;
  TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_UNKNOWN;
  std::string message;
};

struct TRITONBACKEND_Model {
  std::string name;
  std::string folder;  // of the model in its repository
  uint64_t version = 1;
  std::string config;  // config.pbtxt as JSON; the backend may complete it
  bool complete = true;
  void* state = nullptr;
};

struct BatchReport {
  uint64_t rows = 0;
  aoti::Timeline times;
};

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model* model = nullptr;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t device_id = 0;
  void* state = nullptr;
  std::vector<BatchReport> runs;
};

namespace aoti::fake {

// Errors and messages that the backend has made or taken and not freed.
int LiveObjects();

// The ABI version that the server says it has.
void SetAbiVersion(uint32_t major, uint32_t minor);

// What was logged since the last call.
std::vector<std::string> TakeLog();

// The values of the metrics that there are, by "family{model,version}".
std::map<std::string, double> Metrics();

// Whether the server was built with metrics.
void SetMetrics(bool enabled);

// The message of an error that an entry point returned, "" for success. Frees it.
std::string Message(TRITONSERVER_Error* error);

// A request that asks for `outputs`.
std::unique_ptr<TRITONBACKEND_Request> NewRequest(std::vector<std::string> outputs);

}  // namespace aoti::fake
