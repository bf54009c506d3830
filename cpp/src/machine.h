// What this machine has of what packages ask for. The twin of aoti_pack/compiler/machine.py.
#pragma once

#include <cstdint>
#include <string>

#include "manifest.h"
#include "status.h"

namespace aoti {

struct Machine {
  std::string arch;     // as `uname -m` gives it
  std::string cpuinfo;  // the text of /proc/cpuinfo
  std::string glibc;    // "2.36"
  std::string torch;    // "2.13.0"
};

// The machine that this process runs on.
Machine ThisMachine();

// UNSUPPORTED, naming what the package needs, what is here and the mend, when `machine` is of
// another architecture, its CPU lacks a feature, its C library is too old or its torch is outside
// the package's range.
Status CheckMachine(const Manifest& manifest, const Machine& machine);

// A GPU's compute capability: 9.0 for "sm_90".
struct Capability {
  int major = 0;
  int minor = 0;
};

// That of GPU number `gpu`, as the driver numbers what it shows to this process.
Result<Capability> CapabilityOf(int64_t gpu);

// UNSUPPORTED when code for `march` ("sm_90") does not run on a GPU of `capability`: it needs the
// same major and at least its minor capability. Code for "sm_90a" needs the very same.
Status CheckGpu(const std::string& march, Capability capability);

}  // namespace aoti
