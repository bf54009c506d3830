#include "threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <link.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace aoti {
namespace {

constexpr size_t kMostThreads = 1024;

using SetThreads = void (*)(int);

// Every OpenMP runtime in the process: torch carries one, and compiled models may bring another.
std::vector<SetThreads> OpenMpRuntimes() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* found) {
        const std::string_view path(library->dlpi_name);
        const std::string_view name = path.substr(path.rfind('/') + 1);
        if (name.starts_with("libgomp") || name.starts_with("libomp") ||
            name.starts_with("libiomp")) {
          static_cast<std::vector<std::string>*>(found)->emplace_back(path);
        }
        return 0;
      },
      &paths);
  std::vector<SetThreads> setters;
  for (const std::string& path : paths) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    if (void* setter = dlsym(library, "omp_set_num_threads")) {
      setters.push_back(reinterpret_cast<SetThreads>(setter));
    }
    // Torch holds the library; this handle only counted.
    dlclose(library);
  }
  return setters;
}

}  // namespace

size_t UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return static_cast<size_t>(std::max(1, CPU_COUNT(&cores)));
}

Result<size_t> ThreadBudget(const std::string& asked, size_t instances) {
  if (asked.empty()) return std::max<size_t>(1, UsableCores() / std::max<size_t>(1, instances));
  size_t threads = 0;
  const char* end = asked.data() + asked.size();
  const auto parsed = std::from_chars(asked.data(), end, threads);
  if (parsed.ec != std::errc() || parsed.ptr != end || threads < 1 || threads > kMostThreads) {
    return InvalidArgument("parameter \"threads\": expected a whole number from 1 to " +
                           std::to_string(kMostThreads) + ", got \"" + asked + "\"");
  }
  return threads;
}

void UseThreads(size_t threads) {
  thread_local size_t current = 0;
  if (current == threads) return;
  // A thread's first use of ATen sets its number from the process's default; afterwards ours holds.
  // at::set_num_threads would change that default for every thread that comes later.
  at::get_num_threads();
  for (const SetThreads set : OpenMpRuntimes()) set(static_cast<int>(threads));
  current = threads;
}

}  // namespace aoti
