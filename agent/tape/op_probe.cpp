#include "agent/tape/op_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <cstring>
#include <mutex>

#include "agent/tape/copy_storage.h"
#include "agent/tape/rng.h"

namespace tidetape::agent {
namespace {

at::Tensor GeneratorState() {
  at::Generator generator = DefaultGenerator(c10::DeviceType::CPU);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

bool SameBytes(const StorageRef& a, const StorageRef& b) {
  if (a->nbytes() != b->nbytes()) return false;
  if (a->device_type() == c10::DeviceType::CPU) return std::memcmp(a->data(), b->data(), a->nbytes()) == 0;
  const auto bytes = [](const StorageRef& storage) {
    at::Tensor view = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage->device()));
    return view.set_(c10::Storage(storage), 0, {static_cast<int64_t>(storage->nbytes())}, {1});
  };
  return at::equal(bytes(a), bytes(b));
}

}  // namespace

OpProbe::OpProbe(const OpFacts& facts, const torch::jit::Stack& stack, size_t base)
    : facts_(facts), generator_state_(GeneratorState()) {
  facts.probes_left.fetch_sub(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < facts.num_arguments && i < 64; ++i) {
    if (facts.written_arguments >> i & 1) continue;
    const c10::IValue& given = stack[base + i];
    if (given.isTensorList()) {
      for (const c10::IValue& item : given.toListRef()) Watch(i, item);
    } else {
      Watch(i, given);
    }
  }
}

void OpProbe::Watch(uint32_t argument, const c10::IValue& given) {
  if (!given.isTensor() || !given.toTensor().defined() || !given.toTensor().has_storage()) return;
  const at::Tensor& tensor = given.toTensor();
  watched_.push_back({argument, tensor, CopyStorage(*tensor.storage().unsafeGetStorageImpl())});
}

std::vector<OpProbe::HiddenWrite> OpProbe::FindHiddenWrites() const {
  std::vector<HiddenWrite> found;
  for (const Watched& watched : watched_) {
    auto storage = StorageRef::reclaim_copy(watched.tensor.storage().unsafeGetStorageImpl());
    if (SameBytes(storage, watched.before)) continue;
    facts_.hidden_writes.fetch_or(uint64_t{1} << watched.argument, std::memory_order_relaxed);
    found.push_back({std::move(storage), watched.before});
  }
  return found;
}

bool OpProbe::Drew() const {
  const at::Tensor now = GeneratorState();
  const bool drew = std::memcmp(now.const_data_ptr(), generator_state_.const_data_ptr(), now.nbytes()) != 0;
  if (drew) facts_.draws.store(true, std::memory_order_relaxed);
  return drew;
}

}  // namespace tidetape::agent
