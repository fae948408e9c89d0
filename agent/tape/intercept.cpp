#include "agent/tape/intercept.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/zero_ops.h>
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

constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;
constexpr c10::DispatchKey kWatchKey = c10::DispatchKey::DeferredInit;
thread_local int64_t intercepted = 0;

c10::DispatchKeySet Below(c10::DispatchKeySet keys, c10::DispatchKey key) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
}

void Record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = Below(keys, kRecordKey);
  ++intercepted;
  if (Recorder* recorder = Recorder::Current()) {
    recorder->Record(op, below, stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kRecordKey);
  op.redispatchBoxed(below, stack);
}

void NoteWatched() {
  ++intercepted;
  if (!open_tapes::Any()) SetWatchingWrites(false);
}

void WatchWrites(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  NoteWatched();
  open_tapes::BeforeOp(FactsOf(op), *stack);
  op.redispatchBoxed(Below(keys, kWatchKey), stack);
}

// The same without boxing, for the ops that backward itself runs by the hundred: they accumulate gradients, and fill new tensors.
template <typename Op, typename... Arguments>
at::Tensor& WatchWrite(c10::DispatchKeySet keys, at::Tensor& written, Arguments... arguments) {
  NoteWatched();
  if (written.has_storage()) open_tapes::BeforeWrite(*written.storage().unsafeGetStorageImpl());
  return Op::redispatch(Below(keys, kWatchKey), written, arguments...);
}

void AddUnboxedWatches() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kWatchKey, __FILE__, __LINE__);
  library->impl("add_.Tensor", TORCH_FN((WatchWrite<at::_ops::add__Tensor, const at::Tensor&, const at::Scalar&>)));
  library->impl("copy_", TORCH_FN((WatchWrite<at::_ops::copy_, const at::Tensor&, bool>)));
  library->impl("fill_.Scalar", TORCH_FN((WatchWrite<at::_ops::fill__Scalar, const at::Scalar&>)));
  library->impl("zero_", TORCH_FN((WatchWrite<at::_ops::zero_>)));
}

// The dispatcher passes by the fallback on `key` for torch's own ops of a kind, at no cost.
template <typename Predicate>
void LetPass(c10::DispatchKey key, Predicate passes) {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || !passes(FactsOf(*op))) continue;
    library->impl(toString(name).c_str(), torch::CppFunction::makeFallthrough());
  }
}

template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* kFallback>
void AddFallback(c10::DispatchKey key) {
  auto* library = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<kFallback>());
}

}  // namespace

const std::string& InstallInterception() {
  static const std::string* problem = [] {
    for (const c10::DispatchKey key : {kRecordKey, kWatchKey}) {
      if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) continue;
      return new std::string(std::string("another fallback sits on DispatchKey::") + c10::toString(key) +
                             " in this process (torch " + std::to_string(TT_TORCH_VERSION) +
                             "); training goes on without Tidetape");
    }
    AddFallback<&Record>(kRecordKey);
    // Views make no value of their own.
    LetPass(kRecordKey, [](const OpFacts& facts) { return facts.pure_view; });
    AddFallback<&WatchWrites>(kWatchKey);
    AddUnboxedWatches();
    LetPass(kWatchKey, [](const OpFacts& facts) { return facts.written_arguments == 0; });
    return new std::string();
  }();
  return *problem;
}

void SetIntercepting(bool on) { c10::impl::tls_set_dispatch_key_included(kRecordKey, on); }
bool Intercepting() { return c10::impl::tls_is_dispatch_key_included(kRecordKey); }

void SetWatchingWrites(bool on) { c10::impl::tls_set_dispatch_key_included(kWatchKey, on); }
bool WatchingWrites() { return c10::impl::tls_is_dispatch_key_included(kWatchKey); }

int64_t InterceptedOps() { return intercepted; }

}  // namespace tidetape::agent
