// A place as torch names it.
#pragma once

#include <c10/core/Device.h>

#include "tensor.h"

namespace aoti {

inline c10::Device DeviceOf(Place place) {
  return place.on_host() ? c10::Device(c10::kCPU)
                         : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(place.gpu));
}

}  // namespace aoti
