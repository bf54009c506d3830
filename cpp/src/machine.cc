#include "machine.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <charconv>
#include <compare>
#include <optional>
#include <string_view>

#include "cpu.h"
#include "package.h"

namespace aoti {
namespace {

// The first two numbers of a version, which is what compatibility is promised by.
struct Release {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Release&) const = default;
};

// "2.13.0" is 2.13; nothing for what is no version.
std::optional<Release> ReadRelease(std::string_view text) {
  Release release;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, release.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, release.minor);
  if (minor.ec != std::errc()) return std::nullopt;
  return release;
}

Status NoVersion(const std::string& field, const std::string& got) {
  return InvalidArgument("manifest." + field + ": expected a version such as \"2.13\", got \"" +
                         got + "\"");
}

Status CheckFeatures(const Manifest& manifest, const Machine& machine) {
  std::string missing;
  for (const std::string& feature :
       MissingFeatures(manifest.target.cpu_features, machine.cpuinfo)) {
    missing += (missing.empty() ? "" : ", ") + feature;
  }
  if (missing.empty()) return {};
  return Unsupported("the package was compiled for a CPU with " + missing +
                     ", which this one lacks: compile it on this machine, or for an older target");
}

Status CheckGlibc(const Manifest& manifest, const Machine& machine) {
  const std::optional<Release> needed = ReadRelease(manifest.target.glibc);
  if (!needed) return NoVersion("target.glibc", manifest.target.glibc);
  const std::optional<Release> here = ReadRelease(machine.glibc);
  if (here && *here >= *needed) return {};
  return Unsupported("the package needs glibc " + manifest.target.glibc +
                     " or newer, and this machine has " + machine.glibc +
                     ": compile it on a system as old as this one, or serve it on a newer one");
}

Status CheckTorch(const Manifest& manifest, const Machine& machine) {
  const std::optional<Release> oldest = ReadRelease(manifest.torch_min);
  const std::optional<Release> newest = ReadRelease(manifest.torch_max);
  if (!oldest) return NoVersion("torch_range", manifest.torch_min);
  if (!newest) return NoVersion("torch_range", manifest.torch_max);
  const std::optional<Release> here = ReadRelease(machine.torch);
  if (here && *oldest <= *here && *here <= *newest) return {};
  const std::string range = "torch " + manifest.torch_min + " to " + manifest.torch_max;
  return Unsupported("the package needs " + range + ", and this backend runs torch " +
                     machine.torch + ": compile it with this torch, or build the backend for " +
                     range);
}

// The driver's library, for as long as this lives. It is not linked: most machines have none.
class Driver {
 public:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {}
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver() {
    if (library_ != nullptr) ::dlclose(library_);
  }

  explicit operator bool() const { return library_ != nullptr; }

  // Calls a function of the driver that returns 0 for success; -1 when it has no such function.
  template <typename... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    void* symbol = ::dlsym(library_, name);
    if (symbol == nullptr) return -1;
    return reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...);
  }

 private:
  void* library_;
};

// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of CUDA's driver API.
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

}  // namespace

Machine ThisMachine() {
  Machine machine;
  utsname names{};
  if (::uname(&names) == 0) machine.arch = names.machine;
  machine.cpuinfo = ReadCpuInfo();
  machine.glibc = ::gnu_get_libc_version();
  machine.torch = RunningTorch();
  return machine;
}

Status CheckMachine(const Manifest& manifest, const Machine& machine) {
  if (manifest.target.arch != machine.arch) {
    return Unsupported("the package was compiled for " + manifest.target.arch +
                       ", and this machine is " + machine.arch + ": compile it on a machine with " +
                       machine.arch);
  }
  AOTI_RETURN_IF_ERROR(CheckFeatures(manifest, machine));
  AOTI_RETURN_IF_ERROR(CheckGlibc(manifest, machine));
  return CheckTorch(manifest, machine);
}

Result<Capability> CapabilityOf(int64_t gpu) {
  const Driver driver;
  if (!driver) {
    return Unsupported(
        "the package needs a GPU, and libcuda.so.1 of its driver is not here: install NVIDIA's "
        "driver, or compile the package for \"cpu\"");
  }
  Capability capability;
  int device = 0;
  int failed = driver.Call("cuInit", 0u);
  if (failed == 0) failed = driver.Call("cuDeviceGet", &device, static_cast<int>(gpu));
  for (const auto& [value, attribute] : {std::pair{&capability.major, kCapabilityMajor},
                                         std::pair{&capability.minor, kCapabilityMinor}}) {
    if (failed == 0) failed = driver.Call("cuDeviceGetAttribute", value, attribute, device);
  }
  if (failed == 0) return capability;
  return Unsupported("GPU " + std::to_string(gpu) + " cannot be used (CUDA error " +
                     std::to_string(failed) + "): look at `nvidia-smi`");
}

Status CheckGpu(const std::string& march, Capability capability) {
  constexpr std::string_view kPrefix = "sm_";
  int number = 0;
  const char* end = march.data() + march.size();
  std::string_view rest;
  bool good = march.starts_with(kPrefix);
  if (good) {
    const auto parsed = std::from_chars(march.data() + kPrefix.size(), end, number);
    rest = {parsed.ptr, static_cast<size_t>(end - parsed.ptr)};
    good = parsed.ec == std::errc() && number >= 10 && (rest.empty() || rest == "a");
  }
  if (!good) {
    return InvalidArgument("manifest.target.march: expected one such as \"sm_90\", got \"" + march +
                           "\"");
  }
  const int here = capability.major * 10 + capability.minor;
  const bool same_major = number / 10 == capability.major && number <= here;
  if (rest.empty() ? same_major : number == here) return {};
  return Unsupported("the package was compiled for " + march + ", and this GPU is sm_" +
                     std::to_string(here) + ": compile it on a machine with this GPU");
}

}  // namespace aoti
