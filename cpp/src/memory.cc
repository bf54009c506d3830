#include "memory.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "device.h"

namespace aoti {
namespace {

at::Tensor AsBytes(void* data, Place place, size_t bytes) {
  return at::from_blob(data, {static_cast<int64_t>(bytes)},
                       at::TensorOptions().dtype(at::kByte).device(DeviceOf(place)));
}

}  // namespace

std::byte* ScratchBuffer::Reserve(size_t bytes) {
  if (memory_ == nullptr || bytes > capacity_) {
    // Half as much again, so that slowly growing requests do not allocate each time.
    const size_t wanted = std::max({bytes, capacity_ + capacity_ / 2, kAlignment});
    const size_t rounded = (wanted + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reset();
    capacity_ = 0;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (memory_ == nullptr) throw std::bad_alloc();
    capacity_ = rounded;
  }
  return memory_.get();
}

void CopyBytes(void* to, Place to_place, const void* from, Place from_place, size_t bytes) {
  if (bytes == 0) return;
  if (to_place.on_host() && from_place.on_host()) {
    std::memcpy(to, from, bytes);
    return;
  }
  AsBytes(to, to_place, bytes).copy_(AsBytes(const_cast<void*>(from), from_place, bytes));
  // A copy between two GPUs only queues.
  const c10::Device device = DeviceOf(to_place.on_host() ? from_place : to_place);
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.getStream(device).synchronize();
}

}  // namespace aoti
