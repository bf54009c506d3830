#include "cpu.h"

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace aoti {

std::vector<std::string> MissingFeatures(const std::vector<std::string>& needed,
                                         std::string_view cpuinfo) {
  std::istringstream lines{std::string(cpuinfo)};
  std::string line;
  while (std::getline(lines, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream key(line.substr(0, colon));
    std::string word;
    if (!(key >> word) || (word != "flags" && word != "Features")) continue;
    std::istringstream words(line.substr(colon + 1));
    const std::set<std::string> present{std::istream_iterator<std::string>(words), {}};
    std::vector<std::string> missing;
    for (const std::string& feature : needed) {
      if (!present.contains(feature)) missing.push_back(feature);
    }
    return missing;
  }
  return {};
}

std::string ReadCpuInfo() {
  std::ifstream stream("/proc/cpuinfo");
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace aoti
