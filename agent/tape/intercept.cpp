#include "agent/tape/intercept.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <memory>

#include "agent/tape/op_facts.h"
#include "agent/tape/open_tapes.h"
#include "agent/tape/recorder.h"

#if TT_TORCH_VERSION / 100 != 214
#error "The interception was checked with torch 2.14 only; see requirements.txt"
#endif

namespace tidetape::agent {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;
thread_local int64_t intercepted = 0;
thread_local bool passing_on = false;

void Intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  ++intercepted;
  if (Recorder* recorder = Recorder::Current()) {
    recorder->Record(op, below, stack);
    return;
  }
  if (!passing_on && !open_tapes::Any()) SetIntercepting(false);
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  // Outside of blocks only writes matter.
  open_tapes::BeforeOp(FactsOf(op), *stack);
  op.redispatchBoxed(below, stack);
}

// Views make no value of their own: the dispatcher passes by the fallback for them, at no cost.
void LetViewsPass() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || !FactsOf(*op).pure_view) continue;
    library->impl(toString(name).c_str(), torch::CppFunction::makeFallthrough());
  }
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
    LetViewsPass();
    return new std::string();
  }();
  return *problem;
}

void SetIntercepting(bool on) { c10::impl::tls_set_dispatch_key_included(kKey, on); }

void SetPassingOn(bool on) {
  passing_on = on;
  SetIntercepting(on);
}

bool Intercepting() { return c10::impl::tls_is_dispatch_key_included(kKey); }

int64_t InterceptedOps() { return intercepted; }

}  // namespace tidetape::agent
