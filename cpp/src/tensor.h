// Tensors as the executors pass them on: contiguous bytes with a shape, no library behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datatypes.h"

namespace aoti {

// Where memory lies: in the host's, or on GPU number `gpu`.
struct Place {
  static constexpr int64_t kHost = -1;
  int64_t gpu = kHost;

  bool on_host() const { return gpu == kHost; }
  bool operator==(const Place&) const = default;
};

// An input of a run. The memory and the shape belong to someone else.
struct TensorRef {
  void* data = nullptr;
  Place place;
  const Datatype* datatype = nullptr;
  std::span<const int64_t> shape;
};

// An output of a run, which keeps its memory alive.
struct OutputTensor {
  std::shared_ptr<void> owner;
  const std::byte* data = nullptr;
  Place place;
  const Datatype* datatype = nullptr;  // null for a type that the protocol does not know
  std::vector<int64_t> shape;
  size_t bytes = 0;
};

}  // namespace aoti
