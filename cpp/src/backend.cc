// The entry points that the server calls. Everything else is in the classes behind them.
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "metrics.h"
#include "model.h"
#include "server.h"
#include "status.h"
#include "triton_abi.h"

namespace aoti {
namespace {

struct DeleteMessage {
  void operator()(TRITONSERVER_Message* message) const {
    if (auto* error = TRITONSERVER_MessageDelete(message)) TRITONSERVER_ErrorDelete(error);
  }
};

Status CheckAbi() {
  uint32_t major = 0;
  uint32_t minor = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ApiVersion(&major, &minor)));
  if (major == kAbiMajor && minor >= kAbiMinor) return {};
  return Unsupported("the aoti backend needs version " + std::to_string(kAbiMajor) + "." +
                     std::to_string(kAbiMinor) + " or later of the backend ABI, the server has " +
                     std::to_string(major) + "." + std::to_string(minor));
}

Result<std::string> ConfigText(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* raw = nullptr;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelConfig(model, 1, &raw)));
  const std::unique_ptr<TRITONSERVER_Message, DeleteMessage> message(raw);
  const char* text = nullptr;
  size_t length = 0;
  AOTI_RETURN_IF_ERROR(
      FromServerError(TRITONSERVER_MessageSerializeToJson(message.get(), &text, &length)));
  return std::string(text, length);
}

Status SetConfig(TRITONBACKEND_Model* model, const std::string& config) {
  TRITONSERVER_Message* raw = nullptr;
  AOTI_RETURN_IF_ERROR(FromServerError(
      TRITONSERVER_MessageNewFromSerializedJson(&raw, config.data(), config.size())));
  const std::unique_ptr<TRITONSERVER_Message, DeleteMessage> message(raw);
  return FromServerError(TRITONBACKEND_ModelSetConfig(model, 1, message.get()));
}

Status InitializeModel(TRITONBACKEND_Model* handle) {
  const char* name = nullptr;
  const char* repository = nullptr;
  uint64_t version = 0;
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelName(handle, &name)));
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelVersion(handle, &version)));
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelRepository(handle, &type, &repository)));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM) {
    return Unsupported(std::string(name) + ": the aoti backend needs its model in a file system");
  }
  AOTI_ASSIGN_OR_RETURN(const std::string config, ConfigText(handle));
  bool complete = false;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelAutoCompleteConfig(handle, &complete)));
  AOTI_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> model,
      Model::Create(name, std::filesystem::path(repository) / std::to_string(version), config,
                    complete));
  if (model->config() != config) AOTI_RETURN_IF_ERROR(SetConfig(handle, model->config()));
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelSetState(handle, model.get())));
  static_cast<void>(model.release());  // the server holds it until ModelFinalize
  return {};
}

Status InitializeInstance(TRITONBACKEND_ModelInstance* handle) {
  TRITONBACKEND_Model* model_handle = nullptr;
  void* model = nullptr;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_AUTO;
  int32_t device_id = 0;
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelInstanceModel(handle, &model_handle)));
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelState(model_handle, &model)));
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelInstanceKind(handle, &kind)));
  AOTI_RETURN_IF_ERROR(FromServerError(TRITONBACKEND_ModelInstanceDeviceId(handle, &device_id)));
  AOTI_ASSIGN_OR_RETURN(std::unique_ptr<Instance> instance,
                        Instance::Create(*static_cast<Model*>(model), handle, kind, device_id));
  AOTI_RETURN_IF_ERROR(
      FromServerError(TRITONBACKEND_ModelInstanceSetState(handle, instance.get())));
  static_cast<void>(instance.release());  // the server holds it until ModelInstanceFinalize
  return {};
}

}  // namespace
}  // namespace aoti

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return aoti::AtBoundary([] {
    AOTI_RETURN_IF_ERROR(aoti::CheckAbi());
    aoti::StartMetrics();
    return aoti::Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
  return aoti::AtBoundary([] {
    aoti::StopMetrics();
    return aoti::Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                      TRITONBACKEND_BackendAttribute* attributes) {
  // Instances share one package, which is loaded under a lock.
  return TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return aoti::AtBoundary([model] { return aoti::InitializeModel(model); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return aoti::AtBoundary([model] {
    void* state = nullptr;
    AOTI_RETURN_IF_ERROR(aoti::FromServerError(TRITONBACKEND_ModelState(model, &state)));
    const std::unique_ptr<aoti::Model> ends(static_cast<aoti::Model*>(state));
    return aoti::Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return aoti::AtBoundary([instance] { return aoti::InitializeInstance(instance); });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return aoti::AtBoundary([instance] {
    void* state = nullptr;
    AOTI_RETURN_IF_ERROR(aoti::FromServerError(TRITONBACKEND_ModelInstanceState(instance, &state)));
    const std::unique_ptr<aoti::Instance> ends(static_cast<aoti::Instance*>(state));
    return aoti::Status();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       const uint32_t count) {
  return aoti::AtBoundary([instance, requests, count] {
    void* state = nullptr;
    AOTI_RETURN_IF_ERROR(aoti::FromServerError(TRITONBACKEND_ModelInstanceState(instance, &state)));
    return static_cast<aoti::Instance*>(state)->Execute({requests, count});
  });
}

}  // extern "C"
