#include "agent/tape/audit.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "agent/tape/copy_storage.h"

namespace tidetape::agent {
namespace {

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype() || a.is_sparse() || a.is_quantized()) return false;
  const at::Tensor x = a.cpu().contiguous();
  const at::Tensor y = b.cpu().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.numel() * x.element_size()) == 0;
}

bool SameBits(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) return SameBits(a.toTensor(), b.toTensor());
  if (a.isTensorList() && b.isTensorList()) {
    const auto x = a.toListRef();
    const auto y = b.toListRef();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!SameBits(x[i].toTensor(), y[i].toTensor())) return false;
    }
  }
  return true;  // numbers decide nothing that a replay reads
}

// Copies tensors by storage, so that arguments that share one go on sharing it.
class AliasingCopier {
 public:
  at::Tensor Copy(const at::Tensor& tensor) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    StorageRef& copy = copies_[storage];
    if (!copy) copy = CopyStorage(*storage);
    auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(copy), tensor.key_set(), tensor.dtype());
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    return at::Tensor(std::move(impl));
  }
  bool Copied(const at::Tensor& tensor) const { return copies_.count(tensor.storage().unsafeGetStorageImpl()) > 0; }

 private:
  std::unordered_map<c10::StorageImpl*, StorageRef> copies_;
};

}  // namespace

std::unique_ptr<Audit> Audit::Prepare(const Tape& tape, const OpRecord& op, const torch::jit::Stack& stack) {
  const OpFacts& facts = *op.facts;
  if (!op.replayable || facts.uninitialized) return nullptr;
  auto audit = std::unique_ptr<Audit>(new Audit(tape, op));
  audit->arguments_.assign(stack.end() - facts.num_arguments, stack.end());
  AliasingCopier copier;
  const auto redirect = [&](c10::IValue& value, bool written) {
    if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage()) return;
    const at::Tensor original = value.toTensor();
    if (!written && !copier.Copied(original)) return;
    value = copier.Copy(original);
    if (!written) return;
    audit->overwritten_.push_back(original);
    audit->copies_.push_back(value.toTensor());
  };
  for (const bool written_ones : {true, false}) {
    for (uint32_t i = 0; i < facts.num_arguments; ++i) {
      const bool written = i < 64 && (facts.written_arguments >> i & 1);
      if (written != written_ones) continue;
      c10::IValue& argument = audit->arguments_[i];
      if (!argument.isTensorList()) {
        redirect(argument, written);
        continue;
      }
      c10::List<at::Tensor> list;
      for (const c10::IValue& item : argument.toListRef()) {
        c10::IValue element = item;
        redirect(element, written);
        list.push_back(element.toTensor());
      }
      argument = std::move(list);
    }
  }
  return audit;
}

bool Audit::Agrees(const torch::jit::Stack& stack) {
  torch::jit::Stack again = std::move(arguments_);
  try {
    std::unique_ptr<RngStates::Scope> drawn;
    if (op_.rng >= 0) drawn = std::make_unique<RngStates::Scope>(tape_.rng, op_.rng);
    op_.facts->handle.redispatchBoxed(op_.keys, &again);
  } catch (const std::exception&) {
    return false;  // what cannot run twice cannot be replayed
  }
  if (again.size() != op_.facts->num_returns) return false;
  for (size_t i = 0; i < again.size(); ++i) {
    if (!SameBits(stack[stack.size() - again.size() + i], again[i])) return false;
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (!SameBits(overwritten_[i], copies_[i])) return false;
  }
  return true;
}

}  // namespace tidetape::agent
