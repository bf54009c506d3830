// How an instance of a model answers requests.
#pragma once

#include <memory>
#include <span>

#include "manifest.h"
#include "request.h"
#include "runner.h"

namespace aoti {

// Belongs to one instance; the server calls it from one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;

  // Answers and closes every request. An exception leaves the rest of them to their destructors.
  virtual void Execute(std::span<Request> requests) = 0;
};

}  // namespace aoti
