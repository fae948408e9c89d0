#include "agent/tape/intercept.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <memory>

#include "agent/tape/recorder.h"

#if TT_TORCH_VERSION / 100 != 214
#error "The interception was checked with torch 2.14 only; see requirements.txt"
#endif

namespace tidetape::agent {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;
thread_local int64_t intercepted = 0;

void Intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  ++intercepted;
  if (Recorder* recorder = Recorder::Current()) {
    recorder->Record(op, below, stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  op.redispatchBoxed(below, stack);
}

}  // namespace

const std::string& InstallInterception() {
  static const std::string* problem = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kKey)) {
      return new std::string("another fallback sits on DispatchKey::Fake in this process (torch " +
                             std::to_string(TT_TORCH_VERSION) + "); training goes on without Tidetape");
    }
    static auto* library = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&Intercept>());
    return new std::string();
  }();
  return *problem;
}

void SetIntercepting(bool on) { c10::impl::tls_set_dispatch_key_included(kKey, on); }

int64_t InterceptedOps() { return intercepted; }

}  // namespace tidetape::agent
