// A program without Loam that loads a shared object, calls it and unloads it, twice.
#include <cstdio>
#include <string>

#include <dlfcn.h>

int main(int, char** argv) {
  for (const char* const round : {"_1", "_2"}) {
    void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    void* const entry = plugin == nullptr ? nullptr : dlsym(plugin, "loam_plugin_run");
    if (entry == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    const std::string name = argv[3] + std::string(round);
    if (reinterpret_cast<int (*)(const char*, const char*)>(entry)(argv[2], name.c_str()) != 0) return 1;
    if (dlclose(plugin) != 0) return 1;
  }
  std::puts("right");
  return 0;
}
