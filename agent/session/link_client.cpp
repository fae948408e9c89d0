#include "agent/session/link_client.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <stdexcept>

namespace tidetape::agent {
namespace {

template <typename Function>
void Find(void* library, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error("tidetape: " + path + " has no function " + name + "; build it again");
}

}  // namespace

const LinkLibrary& LoadLinkLibrary(const std::string& path) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::string, LinkLibrary>();
  const std::lock_guard lock(mutex);
  const auto found = loaded->find(path);
  if (found != loaded->end()) return found->second;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(std::string("tidetape: cannot load the planner link: ") + dlerror());
  decltype(&tt_link_abi_version) abi_version = nullptr;
  Find(library, path, "tt_link_abi_version", abi_version);
  if (abi_version() != TT_LINK_ABI_VERSION) {
    throw std::runtime_error("tidetape: " + path + " speaks version " + std::to_string(abi_version()) +
                             " of the link interface, this build speaks " + std::to_string(TT_LINK_ABI_VERSION) +
                             "; build both again");
  }
  LinkLibrary functions;
  Find(library, path, "tt_link_open", functions.open);
  Find(library, path, "tt_link_close", functions.close);
  Find(library, path, "tt_link_put_tape", functions.put_tape);
  Find(library, path, "tt_link_report_step", functions.report_step);
  Find(library, path, "tt_link_plan_activated", functions.plan_activated);
  Find(library, path, "tt_link_take_plan", functions.take_plan);
  Find(library, path, "tt_link_release_plan", functions.release_plan);
  Find(library, path, "tt_link_set_memory_limit", functions.set_memory_limit);
  Find(library, path, "tt_link_state", functions.state);
  return loaded->emplace(path, functions).first->second;
}

}  // namespace tidetape::agent
