#include "collectives/testing/nccl_standin/standin_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace tidetape::collectives {
namespace {

// Where Bazel's tests find it; other builds say where it is.
#ifndef TT_NCCL_STANDIN
#define TT_NCCL_STANDIN "collectives/testing/nccl_standin/libnccl_standin.so"
#endif

template <typename Function>
Function Find(void* library, const char* name) {
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s: %s\n", TT_NCCL_STANDIN, dlerror());
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

}  // namespace

std::string StandinLibrary::Path() { return TT_NCCL_STANDIN; }

StandinLibrary::StandinLibrary(const StandinOptions& options) {
  void* const library = dlopen(TT_NCCL_STANDIN, RTLD_NOW | RTLD_LOCAL);
  Find<void (*)(const StandinOptions*)>(library, "tt_standin_configure")(&options);
  calls_ = Find<const char* (*)()>(library, "tt_standin_calls");
  device_ = new HostDevice(Find<HostDevice::CopyFunction>(library, "tt_standin_copy"));
}

std::vector<std::string> StandinLibrary::Calls() const {
  std::vector<std::string> calls;
  std::istringstream text(calls_());
  for (std::string line; std::getline(text, line);) calls.push_back(line);
  return calls;
}

int StandinLibrary::Count(const std::string& beginning) const {
  const std::vector<std::string> calls = Calls();
  return static_cast<int>(
      std::count_if(calls.begin(), calls.end(), [&](const std::string& call) { return call.rfind(beginning, 0) == 0; }));
}

}  // namespace tidetape::collectives
