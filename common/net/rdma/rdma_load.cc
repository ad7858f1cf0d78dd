// Finds and loads the module for rdma:// addresses. A program that never uses such an address needs neither the
// module nor the RDMA libraries.

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

#include "common/base/log.h"
#include "common/net/link/transport_base.h"
#include "common/net/rdma/rdma_module.h"

namespace loam::net {
namespace {

/// The folders that may have the module, in the order in which they are searched.
std::vector<std::filesystem::path> module_folders() {
  // getenv() is unsafe only while another thread changes the environment. Loam itself never does; a program that links
  // the client library must not do so while it makes an rdma:// transport.
  if (const char* folder = std::getenv("LOAM_MODULE_DIR"); folder != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    return {folder};
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const std::filesystem::path folder = program.parent_path();
  return {folder, folder.parent_path() / "lib" / "loam"};
}

Status cannot_load(const std::string& tried, const std::string& reason) {
  std::string message = "rdma:// needs the module ";
  message += kRdmaModuleFile;
  if (reason.find("libibverbs") != std::string::npos || reason.find("librdmacm") != std::string::npos) {
    message += ", which cannot be loaded: " + reason +
               "; install the Debian packages librdmacm1, libibverbs1 and ibverbs-providers";
  } else if (!reason.empty()) {
    message += ", which cannot be loaded: " + reason + "; install the module of this release of Loam";
  } else {
    message += ", which is not in " + tried + "; install it there, or name its folder in LOAM_MODULE_DIR";
  }
  return {StatusCode::kUnavailable, std::move(message)};
}

Status load(RdmaModuleEntry*& entry) {
  std::string tried;
  for (const std::filesystem::path& folder : module_folders()) {
    tried += (tried.empty() ? "" : " or ") + folder.string();
    const std::filesystem::path file = folder / kRdmaModuleFile;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) continue;
    // The module is never unloaded: connections, and threads and fork handlers of verbs, may use it until the process
    // ends.
    void* module = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* symbol = module == nullptr ? nullptr : ::dlsym(module, kRdmaModuleEntry);
    if (symbol != nullptr) {
      entry = reinterpret_cast<RdmaModuleEntry*>(symbol);
      return ok_status();
    }
    const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the text is of this thread
    return cannot_load(tried, reason == nullptr ? "no reason given" : reason);
  }
  return cannot_load(tried.empty() ? "the program's folder" : tried, "");
}

}  // namespace

Result<std::unique_ptr<Transport>> make_rdma_transport(const TransportOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  static std::mutex mutex;
  static RdmaModuleEntry* entry = nullptr;  // guarded by mutex
  {
    const std::lock_guard lock(mutex);
    if (entry == nullptr) LOAM_RETURN_IF_ERROR(load(entry));
  }
  Result<std::unique_ptr<Transport>> result =
      Status(StatusCode::kInternal, "the module for rdma:// returned no result");
  const auto sink = [](const LogLine& line) { log(line); };
  entry(RdmaModuleAbi{}, options, result, sink);
  return result;
}

}  // namespace loam::net
