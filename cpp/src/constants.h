// Constants (weights and buffers) that can be replaced while a model serves.
#pragma once

#include <cstddef>
#include <span>

#include "manifest.h"
#include "status.h"

namespace aoti {

// A new value of the constant `spec`: contiguous bytes of its type and shape in the host's memory.
// All of it belongs to someone else.
struct NewConstant {
  const ConstantSpec* spec = nullptr;
  std::span<const std::byte> data;
};

// A loaded package whose constants can be replaced, all at once. One thread at a time calls these;
// runs go on meanwhile.
class Replaceable {
 public:
  virtual ~Replaceable() = default;

  // Makes a second set of constants beside the one in use: `values`, and for all others what is in
  // use. An error leaves no second set.
  virtual Status Stage(std::span<const NewConstant> values) = 0;

  // Exchanges the two sets. Runs in flight are waited for and end with the old set; those that come
  // later begin with the new one. Called again, it undoes itself. Requires a second set.
  virtual Status Swap() = 0;

  // Frees the set that is not in use. Without one, does nothing.
  virtual void Release() noexcept = 0;
};

}  // namespace aoti
