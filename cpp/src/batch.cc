#include "batch.h"

#include <cstdint>

#include "server.h"

namespace aoti {
namespace {

bool MayJoin(const CheckedRequest& a, const CheckedRequest& b, size_t batch_symbol) {
  for (size_t i = 0; i < a.symbols.size(); ++i) {
    if (i != batch_symbol && a.symbols[i] != b.symbols[i]) return false;
  }
  return true;
}

struct Buffer {
  const void* data = nullptr;
  uint64_t bytes = 0;
  Place place;
};

Result<Buffer> GetBuffer(TRITONBACKEND_Input* input, uint32_t index, Place wish) {
  Buffer buffer;
  TRITONSERVER_MemoryType type = wish.on_host() ? TRITONSERVER_MEMORY_CPU : TRITONSERVER_MEMORY_GPU;
  int64_t id = wish.on_host() ? 0 : wish.gpu;
  AOTI_RETURN_IF_ERROR(FromServerError(
      TRITONBACKEND_InputBuffer(input, index, &buffer.data, &buffer.bytes, &type, &id)));
  if (type == TRITONSERVER_MEMORY_GPU) buffer.place = Place{id};
  return buffer;
}

}  // namespace

std::vector<RunPlan> PlanRuns(const Manifest& manifest,
                              std::span<const CheckedRequest* const> requests) {
  std::vector<RunPlan> runs;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr) continue;
    if (manifest.wire != Wire::kRows) {
      runs.push_back({{i}, 1});
      continue;
    }
    const size_t symbol = *manifest.batch_symbol;
    const int64_t rows = requests[i]->symbols[symbol];
    RunPlan* joined = nullptr;
    for (RunPlan& run : runs) {
      if (rows <= manifest.RowLimit() - run.rows &&
          MayJoin(*requests[run.members.front()], *requests[i], symbol)) {
        joined = &run;
        break;
      }
    }
    if (joined == nullptr) {
      runs.push_back({{i}, rows});
    } else {
      joined->members.push_back(i);
      joined->rows += rows;
    }
  }
  return runs;
}

Gatherer::Gatherer(const Manifest& manifest, Place place)
    : manifest_(manifest),
      place_(place),
      scratch_(manifest.inputs.size()),
      shapes_(manifest.inputs.size()),
      tensors_(manifest.inputs.size()) {}

Result<std::span<const TensorRef>> Gatherer::Gather(std::span<const CheckedRequest* const> requests,
                                                    int64_t rows) {
  for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
    const auto shape = requests.front()->inputs[i].shape;
    shapes_[i].assign(shape.begin(), shape.end());
    if (manifest_.wire == Wire::kRows) shapes_[i][0] = rows;
    tensors_[i].datatype = manifest_.inputs[i].datatype;
    tensors_[i].shape = shapes_[i];
    AOTI_RETURN_IF_ERROR(GatherInput(i, requests));
  }
  return std::span<const TensorRef>(tensors_);
}

Status Gatherer::GatherInput(size_t index, std::span<const CheckedRequest* const> requests) {
  const TensorSpec& spec = manifest_.inputs[index];
  TensorRef& tensor = tensors_[index];
  if (requests.size() == 1 && requests.front()->inputs[index].buffers == 1 && !spec.mutated) {
    const InputView& view = requests.front()->inputs[index];
    AOTI_ASSIGN_OR_RETURN(const Buffer buffer, GetBuffer(view.handle, 0, place_));
    const bool aligned = reinterpret_cast<uintptr_t>(buffer.data) % spec.datatype->bytes == 0;
    if (aligned && buffer.data != nullptr && buffer.bytes == view.bytes && buffer.place == place_) {
      tensor.data = const_cast<void*>(buffer.data);
      tensor.place = buffer.place;
      return {};
    }
  }
  uint64_t total = 0;
  for (const CheckedRequest* request : requests) total += request->inputs[index].bytes;
  std::byte* memory = scratch_[index].Reserve(total);
  uint64_t offset = 0;
  for (const CheckedRequest* request : requests) {
    const InputView& view = request->inputs[index];
    const uint64_t end = offset + view.bytes;
    if (view.handle == nullptr) {
      FillElements(memory + offset, view.bytes, *spec.fill, *spec.datatype);
      offset = end;
      continue;
    }
    for (uint32_t i = 0; i < view.buffers; ++i) {
      AOTI_ASSIGN_OR_RETURN(const Buffer buffer, GetBuffer(view.handle, i, Place{}));
      if (buffer.bytes > end - offset) {
        return Internal("input '" + spec.name + "' has more bytes than the server said");
      }
      CopyBytes(memory + offset, Place{}, buffer.data, buffer.place, buffer.bytes);
      offset += buffer.bytes;
    }
    if (offset != end)
      return Internal("input '" + spec.name + "' has fewer bytes than the server said");
  }
  tensor.data = memory;
  tensor.place = Place{};
  return {};
}

}  // namespace aoti
