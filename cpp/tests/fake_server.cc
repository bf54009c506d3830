#include "fake_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};

struct TRITONSERVER_Message {
  std::string text;
};

struct TRITONSERVER_Parameter {
  std::string value;
};

struct TRITONSERVER_MetricFamily {
  std::string name;
  bool counter;
};

struct TRITONSERVER_Metric {
  std::string name;
  bool counter;
};

struct TRITONBACKEND_BackendAttribute {
  bool parallel = false;
};

namespace {

std::atomic<int> live_objects{0};
std::atomic<uint32_t> abi_major{kAbiMajor};
std::atomic<uint32_t> abi_minor{kAbiMinor};
std::mutex log_mutex;
std::vector<std::string> log_lines;
std::atomic<bool> metrics_enabled{true};
std::mutex metrics_mutex;
std::map<std::string, double> metrics;

TRITONSERVER_Error* Fail(TRITONSERVER_Error_Code code, const char* message) {
  return TRITONSERVER_ErrorNew(code, message);
}

void MustLive(const TRITONBACKEND_Request* request) {
  if (request->released) ADD_FAILURE() << "a released request was used";
}

}  // namespace

void TRITONBACKEND_Request::AddBytes(std::string name, TRITONSERVER_DataType datatype,
                                     std::vector<int64_t> shape, const void* data,
                                     const std::vector<size_t>& buffers, size_t misalign) {
  auto input = std::make_unique<TRITONBACKEND_Input>();
  input->name = std::move(name);
  input->datatype = datatype;
  input->shape = std::move(shape);
  const auto* from = static_cast<const std::byte*>(data);
  for (const size_t bytes : buffers) {
    if (bytes == 0) continue;  // the server gives no buffer for nothing
    auto memory = std::make_unique<std::byte[]>(bytes + misalign);
    std::memcpy(memory.get() + misalign, from, bytes);
    from += bytes;
    input->buffers.emplace_back(memory.get() + misalign, bytes);
    input->memory.push_back(std::move(memory));
    input->bytes += bytes;
  }
  inputs.push_back(std::move(input));
}

const TRITONBACKEND_Output& TRITONBACKEND_Request::Output(std::string_view name) const {
  static const TRITONBACKEND_Output kNone;
  if (response == nullptr || response->failed) {
    ADD_FAILURE() << "no output '" << name << "': " << Error();
    return kNone;
  }
  for (const auto& output : response->outputs) {
    if (output->name == name) return *output;
  }
  ADD_FAILURE() << "no output '" << name << "'";
  return kNone;
}

std::string TRITONBACKEND_Request::Error() const {
  if (response == nullptr) return "no response";
  return response->failed ? response->message : "";
}

TRITONSERVER_Error_Code TRITONBACKEND_Request::ErrorCode() const {
  return response == nullptr ? TRITONSERVER_ERROR_UNKNOWN : response->code;
}

namespace aoti::fake {

int LiveObjects() {
  return live_objects;
}

void SetAbiVersion(uint32_t major, uint32_t minor) {
  abi_major = major;
  abi_minor = minor;
}

std::vector<std::string> TakeLog() {
  const std::lock_guard lock(log_mutex);
  return std::exchange(log_lines, {});
}

std::map<std::string, double> Metrics() {
  const std::lock_guard lock(metrics_mutex);
  return metrics;
}

void SetMetrics(bool enabled) {
  metrics_enabled = enabled;
}

std::string Message(TRITONSERVER_Error* error) {
  if (error == nullptr) return "";
  std::string message = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  return message;
}

std::unique_ptr<TRITONBACKEND_Request> NewRequest(std::vector<std::string> outputs) {
  auto request = std::make_unique<TRITONBACKEND_Request>();
  request->outputs = std::move(outputs);
  return request;
}

}  // namespace aoti::fake

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* text) {
  ++live_objects;
  return new TRITONSERVER_Error{code, text};
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  --live_objects;
  delete error;
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  return error->code;
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  return error->message.c_str();
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel, const char*, const int,
                                            const char* text) {
  const std::lock_guard lock(log_mutex);
  log_lines.emplace_back(text);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** text, size_t* length) {
  *text = message->text.data();
  *length = message->text.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* text, size_t length) {
  ++live_objects;
  *message = new TRITONSERVER_Message{std::string(text, length)};
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  --live_objects;
  delete message;
  return nullptr;
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char*, TRITONSERVER_ParameterType,
                                                  const void* value) {
  ++live_objects;
  return new TRITONSERVER_Parameter{static_cast<const char*>(value)};
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter) {
  --live_objects;
  delete parameter;
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily** family,
                                                 TRITONSERVER_MetricKind kind, const char* name,
                                                 const char*) {
  if (!metrics_enabled) return Fail(TRITONSERVER_ERROR_UNSUPPORTED, "metrics not supported");
  *family = new TRITONSERVER_MetricFamily{name, kind == TRITONSERVER_METRIC_KIND_COUNTER};
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily* family) {
  delete family;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricNew(TRITONSERVER_Metric** metric,
                                           TRITONSERVER_MetricFamily* family,
                                           const TRITONSERVER_Parameter** labels,
                                           const uint64_t label_count) {
  std::string name = family->name + "{";
  for (uint64_t i = 0; i < label_count; ++i) name += (i > 0 ? "," : "") + labels[i]->value;
  ++live_objects;
  *metric = new TRITONSERVER_Metric{name + "}", family->counter};
  const std::lock_guard lock(metrics_mutex);
  metrics[(*metric)->name] = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric) {
  --live_objects;
  const std::lock_guard lock(metrics_mutex);
  metrics.erase(metric->name);
  delete metric;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value) {
  const std::lock_guard lock(metrics_mutex);
  metrics[metric->name] += value;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricSet(TRITONSERVER_Metric* metric, double value) {
  if (metric->counter) return Fail(TRITONSERVER_ERROR_UNSUPPORTED, "a counter cannot be set");
  const std::lock_guard lock(metrics_mutex);
  metrics[metric->name] = value;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = abi_major;
  *minor = abi_minor;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* attributes, bool enabled) {
  attributes->parallel = enabled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  *name = model->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  *version = model->version;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* type,
                                                  const char** path) {
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *path = model->folder.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, const uint32_t,
                                              TRITONSERVER_Message** config) {
  ++live_objects;
  *config = new TRITONSERVER_Message{model->config};
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* complete) {
  *complete = model->complete;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, const uint32_t,
                                                 TRITONSERVER_Message* config) {
  if (!model->complete) ADD_FAILURE() << "a configuration was set that must stay as it is";
  model->config = config->text;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = model->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  model->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  *kind = instance->kind;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance* instance,
                                                        int32_t* device_id) {
  *device_id = instance->device_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = instance->model;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  *state = instance->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  instance->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request* request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns) {
  MustLive(request);
  if (!(exec_start_ns <= compute_start_ns && compute_start_ns <= compute_end_ns &&
        compute_end_ns <= exec_end_ns)) {
    ADD_FAILURE() << "a request's times run backwards";
  }
  ++(success ? request->reported_success : request->reported_failure);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns) {
  instance->runs.push_back(
      {batch_size, {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns}});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request,
                                                     bool* cancelled) {
  MustLive(request);
  *cancelled = request->cancelled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  MustLive(request);
  *count = static_cast<uint32_t>(request->inputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputName(TRITONBACKEND_Request* request,
                                                   const uint32_t index, const char** name) {
  MustLive(request);
  *name = request->inputs.at(index)->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name,
                                               TRITONBACKEND_Input** input) {
  MustLive(request);
  for (const auto& candidate : request->inputs) {
    if (candidate->name == name) {
      *input = candidate.get();
      return nullptr;
    }
  }
  return Fail(TRITONSERVER_ERROR_INVALID_ARG, "no such input");
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  MustLive(request);
  *count = static_cast<uint32_t>(request->outputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request,
                                                    const uint32_t index, const char** name) {
  MustLive(request);
  *name = request->outputs.at(index).c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  MustLive(request);
  *count = static_cast<uint32_t>(request->parameters.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request,
                                                   const uint32_t index, const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** value) {
  MustLive(request);
  const FakeParameter& parameter = request->parameters.at(index);
  *key = parameter.key.c_str();
  *type = static_cast<TRITONSERVER_ParameterType>(parameter.value.index());
  const auto* text = std::get_if<std::string>(&parameter.value);
  *value = text != nullptr
               ? static_cast<const void*>(text->c_str())
               : std::visit([](const auto& held) -> const void* { return &held; }, parameter.value);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, const uint32_t) {
  MustLive(request);
  if (request->response == nullptr) ADD_FAILURE() << "a request was released without an answer";
  request->released = true;
  request->inputs.clear();  // so that a sanitizer sees what uses them from now on
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* rank,
                                                  uint64_t* bytes, uint32_t* buffers) {
  if (name != nullptr) *name = input->name.c_str();
  *datatype = input->datatype;
  *shape = input->shape.data();
  *rank = static_cast<uint32_t>(input->shape.size());
  *bytes = input->bytes;
  *buffers = static_cast<uint32_t>(input->buffers.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, const uint32_t index,
                                              const void** data, uint64_t* bytes,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
  *data = input->buffers.at(index).data();
  *bytes = input->buffers.at(index).size();
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  MustLive(request);
  ++live_objects;
  *response = new TRITONBACKEND_Response;
  (*response)->request = request;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 const TRITONSERVER_DataType datatype,
                                                 const int64_t* shape, const uint32_t rank) {
  auto made = std::make_unique<TRITONBACKEND_Output>();
  made->name = name;
  made->datatype = datatype;
  made->shape.assign(shape, shape + rank);
  *output = made.get();
  response->outputs.push_back(std::move(made));
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** data,
                                               const uint64_t bytes,
                                               TRITONSERVER_MemoryType* memory_type,
                                               int64_t* memory_type_id) {
  if (output->name == "refused") return Fail(TRITONSERVER_ERROR_INTERNAL, "no memory for it");
  output->memory = std::make_unique<std::byte[]>(bytes);
  output->bytes = bytes;
  *data = output->memory.get();
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               const uint32_t flags, TRITONSERVER_Error* error) {
  --live_objects;
  std::unique_ptr<TRITONBACKEND_Response> owned(response);
  TRITONBACKEND_Request* request = response->request;
  MustLive(request);
  if (flags != TRITONSERVER_RESPONSE_COMPLETE_FINAL) ADD_FAILURE() << "a response was not final";
  if (request->response != nullptr) ADD_FAILURE() << "a request was answered twice";
  if (error != nullptr) {
    owned->failed = true;
    owned->code = error->code;
    owned->message = error->message;
  }
  request->response = std::move(owned);
  return nullptr;
}

}  // extern "C"
