#include "agent/tape/open_tapes.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agent/tape/copy_storage.h"

namespace tidetape::agent::open_tapes {
namespace {

using WeakTape = c10::weak_intrusive_ptr<Tape>;

struct OpenTape {
  explicit OpenTape(const TapePtr& tape) : tape(tape) {}

  WeakTape tape;
  std::vector<const c10::StorageImpl*> watched;
};

// A write asks only the tapes that may read its storage: there can be thousands of open ones, where graphs are never freed.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const Tape*, OpenTape> tapes;
  // The addresses may be those of storages that are gone, and taken again: the tape itself knows what it reads.
  std::unordered_map<const c10::StorageImpl*, std::vector<const Tape*>> readers;
  std::atomic<size_t> size{0};

  // The caller holds `mutex`.
  void Watch(const Tape& tape, OpenTape& open, const c10::StorageImpl* storage) {
    std::vector<const Tape*>& reading = readers[storage];
    if (std::find(reading.begin(), reading.end(), &tape) != reading.end()) return;
    reading.push_back(&tape);
    open.watched.push_back(storage);
  }
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
  OpenTape& open = registry.tapes.try_emplace(tape.get(), tape).first->second;
  for (const c10::StorageImpl* storage : tape->ReadLater()) registry.Watch(*tape, open, storage);
  registry.size = registry.tapes.size();
}

void Watch(const Tape& tape, const c10::StorageImpl& storage) {
  Registry& registry = Tapes();
  if (registry.size == 0) return;
  const std::lock_guard lock(registry.mutex);
  if (const auto open = registry.tapes.find(&tape); open != registry.tapes.end()) registry.Watch(tape, open->second, &storage);
}

void Remove(const Tape& tape) {
  Registry& registry = Tapes();
  if (registry.size == 0) return;
  decltype(registry.tapes)::node_type gone;  // destroyed after the lock
  const std::lock_guard lock(registry.mutex);
  gone = registry.tapes.extract(&tape);
  if (gone.empty()) return;
  for (const c10::StorageImpl* storage : gone.mapped().watched) {
    const auto reading = registry.readers.find(storage);
    std::erase(reading->second, &tape);
    if (reading->second.empty()) registry.readers.erase(reading);
  }
  registry.size = registry.tapes.size();
}

bool Any() { return Tapes().size.load(std::memory_order_relaxed) > 0; }

void BeforeWrite(c10::StorageImpl& storage) {
  if (!Any() || KnownToOneTensor(storage)) return;
  std::vector<TapePtr> tapes;
  {
    Registry& registry = Tapes();
    const std::lock_guard lock(registry.mutex);
    const auto reading = registry.readers.find(&storage);
    if (reading == registry.readers.end()) return;
    for (const Tape* tape : reading->second) {
      if (TapePtr open = registry.tapes.at(tape).tape.lock()) tapes.push_back(std::move(open));
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
