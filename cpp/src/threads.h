// How many threads an instance computes with.
#pragma once

#include <cstddef>
#include <string>

#include "status.h"

namespace aoti {

// Cores that this process may run on.
size_t UsableCores();

// `asked` (the model's parameter "threads", empty when not given) as a number; without it the cores
// divided by the instances, at least 1.
Result<size_t> ThreadBudget(const std::string& asked, size_t instances);

// Makes the calling thread compute with `threads` threads, itself among them. Other threads keep
// theirs. Costs next to nothing when the thread has that number already.
void UseThreads(size_t threads);

}  // namespace aoti
