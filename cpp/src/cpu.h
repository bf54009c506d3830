// What this machine's CPU can do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aoti {

// Those of `needed` (names as in /proc/cpuinfo) that the `flags` line of `cpuinfo` lacks. Empty
// when there is no such line: then nothing is known.
std::vector<std::string> MissingFeatures(const std::vector<std::string>& needed,
                                         std::string_view cpuinfo);

// The text of /proc/cpuinfo, empty where there is none.
std::string ReadCpuInfo();

}  // namespace aoti
