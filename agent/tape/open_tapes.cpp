#include "agent/tape/open_tapes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "agent/tape/copy_storage.h"

namespace tidetape::agent::open_tapes {
namespace {

using WeakTape = c10::weak_intrusive_ptr<Tape>;

struct Registry {
  std::mutex mutex;
  std::vector<WeakTape> tapes;
  std::atomic<size_t> size{0};
};

Registry& Tapes() {
  static auto* registry = new Registry();  // tapes may outlive static destruction
  return *registry;
}

// No tape holds the storage, nor knows it by a weak reference: only the tensor that looks at it does. True of most gradients.
bool KnownToOneTensor(c10::StorageImpl& storage) {
  StorageRef borrowed = StorageRef::reclaim(&storage);
  const bool known_to_one = borrowed.use_count() == 1 && borrowed.weak_use_count() == 1;
  borrowed.release();
  return known_to_one;
}

}  // namespace

void Add(const TapePtr& tape) {
  Registry& registry = Tapes();
  const std::lock_guard lock(registry.mutex);
  registry.tapes.emplace_back(tape);
  registry.size = registry.tapes.size();
}

void Remove(const Tape& tape) {
  Registry& registry = Tapes();
  if (registry.size == 0) return;
  WeakTape gone(TapePtr{});  // destroyed after the lock
  const std::lock_guard lock(registry.mutex);
  const auto found = std::find_if(registry.tapes.begin(), registry.tapes.end(),
                                  [&](const WeakTape& other) { return other._unsafe_get_target() == &tape; });
  if (found == registry.tapes.end()) return;
  gone = std::move(*found);
  registry.tapes.erase(found);
  registry.size = registry.tapes.size();
}

bool Any() { return Tapes().size.load(std::memory_order_relaxed) > 0; }

void BeforeWrite(c10::StorageImpl& storage) {
  if (!Any() || KnownToOneTensor(storage)) return;
  std::vector<TapePtr> tapes;
  {
    Registry& registry = Tapes();
    const std::lock_guard lock(registry.mutex);
    for (const WeakTape& tape : registry.tapes) {
      if (TapePtr open = tape.lock()) tapes.push_back(std::move(open));
    }
  }
  StorageRef copy;
  for (const TapePtr& tape : tapes) {
    const std::lock_guard lock(tape->mutex);
    tape->ReadOverwritten(StorageRef::reclaim_copy(&storage));
    for (size_t s = 0; s < tape->storages.size(); ++s) {
      if (!tape->ReplaysFrom(static_cast<int32_t>(s), storage)) continue;
      if (!copy) copy = CopyStorage(storage);
      tape->UseCopy(static_cast<int32_t>(s), copy);
    }
  }
}

void BeforeOp(const OpFacts& facts, const torch::jit::Stack& stack) {
  if (facts.written_arguments == 0 || !facts.replayable || !Any()) return;
  const auto before = [](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) {
      BeforeWrite(*value.toTensor().storage().unsafeGetStorageImpl());
    }
  };
  const size_t base = stack.size() - facts.num_arguments;
  for (uint32_t i = 0; i < facts.num_arguments && i < 64; ++i) {
    if (!(facts.written_arguments >> i & 1)) continue;
    const c10::IValue& given = stack[base + i];
    if (given.isTensorList()) {
      for (const c10::IValue& item : given.toListRef()) before(item);
    } else {
      before(given);
    }
  }
}

}  // namespace tidetape::agent::open_tapes
