#include "agent/tape/saved_hooks.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <mutex>
#include <utility>

#include "agent/measure/step_profile.h"
#include "agent/tape/block.h"
#include "agent/tape/intercept.h"
#include "agent/tape/recorder.h"
#include "agent/tape/replayer.h"

namespace tidetape::agent {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

void CheckVersion(const Tape& tape, const c10::VariableVersion& version, uint32_t expected, const char* what) {
  if (!version.enabled() || version.current_version() == expected) return;
  TORCH_CHECK(false, "one of the variables needed for gradient computation has been modified by an inplace operation: ", what,
              " saved in block '", tape.block->name(), "' is at version ", version.current_version(), "; expected version ",
              expected,
              " instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
              "torch.autograd.set_detect_anomaly(True).");
}

// One saved tensor. Alive as long as autograd may read it again.
class SavedHandle final : public SavedVariableHooks {
 public:
  ~SavedHandle() override {
    if (!tape_) return;
    if (value_.storage >= 0) Release();
    if (outside_ >= 0) ReleaseAlias();
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    Recorder* recorder = Recorder::Current();
    TORCH_INTERNAL_ASSERT(recorder != nullptr);
    tape_ = recorder->tape();
    value_ = recorder->Pack(tensor);
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (!tensor.is_inference()) {
      version_ = impl->version_counter();
      expected_version_ = version_.enabled() ? version_.current_version() : 0;
    }
    if (value_.storage >= 0) return;
    // A leaf is held itself; anything else without its history, which may lead back to the node that saves it.
    if (tensor.is_leaf()) {
      held_ = tensor;
    } else if (IsPlain(*impl)) {
      held_ = Alias(*impl);
      outside_ = recorder->OutsideOf(tensor);
      if (outside_ >= 0) ++tape_->outside_storages[outside_].aliases;
    } else {
      held_ = tensor.detach();
    }
  }

  at::Tensor call_unpack_hook() override {
    CheckVersion(*tape_, version_, expected_version_, held_.defined() ? "a tensor" : "an intermediate");
    if (value_.storage < 0) return held_;
    const std::lock_guard lock(tape_->mutex);
    value_.storage = tape_->Latest(value_.storage);
    if (tape_->recording) return WithVersion(tape_->Build(value_, MaterialiseInForward(*tape_, value_.storage, Original())));
    // Backward writes to nothing that a tape replays from. Autograd's engine sets the keys anew for each of its nodes, so that this
    // holds for the node that asks.
    SetWatchingWrites(false);
    const StorageRecord& record = tape_->storages[value_.storage];
    if (record.kind == StorageKind::kIntermediate) {
      const bool first = !tape_->backward_begun;
      if (first) tape_->NoteBackwardAhead();
      StepProfile::Get().Reads(tape_->position, first, record.site);
      tape_->BeginBackward();
    }
    return WithVersion(tape_->Build(value_, Materialise(*tape_, value_.storage)));
  }

 private:
  at::Tensor WithVersion(at::Tensor tensor) const {
    if (version_.enabled()) tensor.unsafeGetTensorImpl()->set_version_counter(version_);
    return tensor;
  }

  // While the tape is recorded: what autograd packed, if it is still alive.
  StorageRef Original() const {
    const Recorder* recorder = Recorder::Current();
    return recorder != nullptr && recorder->tape() == tape_ ? recorder->Original(value_.storage) : StorageRef();
  }

  // The same data without autograd history, and without a trip through the dispatcher.
  static at::Tensor Alias(const c10::TensorImpl& impl) {
    return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), /*allow_tensor_metadata_change=*/false));
  }

  void Release() {
    Tape& tape = *tape_;
    const std::lock_guard lock(tape.mutex);
    value_.storage = tape.Latest(value_.storage);
    StorageRecord& record = tape.storages[value_.storage];
    if (record.kind != StorageKind::kIntermediate) {
      --record.handles;  // it stays as long as the tape, as where autograd holds it
      return;
    }
    --tape.live_handles;
    if (--record.handles == 0 && record.reads_left == 0 && !tape.recording) {
      StepProfile::Get().Releases(tape.position, record.site);
      tape.DropOverwritten(value_.storage);
      tape.DropReplayed(value_.storage);
      tape.DropKept(value_.storage);
      StepProfile::Get().ReleaseEnds(tape.position);
    }
    if (tape.live_handles == 0 && tape.backward_begun && !tape.recording) tape.Close();
  }

  void ReleaseAlias() {
    const std::lock_guard lock(tape_->mutex);
    --tape_->outside_storages[outside_].aliases;
  }

  TapePtr tape_;
  ValueRef value_;
  at::Tensor held_;
  int32_t outside_ = -1;  // Tape::outside_storages, where held_ shares one
  c10::VariableVersion version_;
  uint32_t expected_version_ = 0;
};

class TapeEngine final : public Engine {
 public:
  explicit TapeEngine(Engine& inner) : inner_(inner) {}

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots, const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return inner_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
                                                                 c10::intrusive_ptr<torch::autograd::Node> graph_root,
                                                                 torch::autograd::InputBuffer&& input_buffer) override {
    return inner_.execute_with_graph_task(graph_task, std::move(graph_root), std::move(input_buffer));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override { return inner_.make_anomaly_metadata(); }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    const Recorder* recorder = Recorder::Current();
    if (recorder != nullptr && recorder->packing() && !UserHooksInForce()) return std::make_unique<SavedHandle>();
    return inner_.get_default_saved_variable_hooks();
  }

  std::vector<std::unique_ptr<torch::autograd::NodeCreationHook>> get_node_creation_hooks() override {
    return inner_.get_node_creation_hooks();
  }

  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
                           const c10::intrusive_ptr<torch::autograd::Node>& fn, std::exception& e) override {
    inner_.thread_on_exception(graph_task, fn, e);
  }

  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& ready_queue, bool should_increment) override {
    inner_.thread_init(device, ready_queue, should_increment);
  }

 private:
  Engine& inner_;
};

TapeEngine* installed = nullptr;

}  // namespace

void InstallSavedHooks() {
  static std::once_flag once;
  std::call_once(once, [] {
    installed = new TapeEngine(Engine::get_default_engine());  // never freed: autograd may ask until the process ends
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *installed; });
  });
}

bool UserHooksInForce() {
  return !at::SavedTensorDefaultHooks::is_enabled() || !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

}  // namespace tidetape::agent
