#include "common/program/arguments.h"

#include <algorithm>
#include <string_view>

namespace loam::program {

std::vector<std::string> parser_arguments(int argc, const char* const* argv) {
  std::vector<std::string> result;
  bool options = true;  // false after "--", which ends the options
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    options = options && text != "--";
    if (options && text.starts_with("--") && text.find('=') == text.size() - 1) {
      result.emplace_back(text.substr(0, text.size() - 1));
      result.emplace_back();
    } else {
      result.emplace_back(text);
    }
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace loam::program
