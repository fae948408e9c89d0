// A small hash map from 64-bit keys to 32-bit numbers that is emptied in constant time, for one recording after another.
#ifndef TIDETAPE_AGENT_TAPE_FLAT_INDEX_H_
#define TIDETAPE_AGENT_TAPE_FLAT_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tidetape::agent {

// Open addressing with linear probing; grows at half full. Not thread-safe.
class FlatIndex {
 public:
  FlatIndex() : slots_(256) {}

  // The number under `key`, or null.
  int32_t* Find(uint64_t key) {
    for (size_t i = Home(key);; i = Next(i)) {
      Slot& slot = slots_[i];
      if (slot.epoch != epoch_) return nullptr;
      if (slot.key == key) return &slot.value;
    }
  }

  // The number under `key`, which is 0 if it was not there. Valid until the next insertion.
  int32_t& operator[](uint64_t key) {
    for (size_t i = Home(key);; i = Next(i)) {
      Slot& slot = slots_[i];
      if (slot.epoch == epoch_) {
        if (slot.key == key) return slot.value;
        continue;
      }
      if (2 * (size_ + 1) > slots_.size()) {
        Grow();
        return (*this)[key];
      }
      slot = {key, epoch_, 0};
      ++size_;
      return slot.value;
    }
  }

  void Clear() {
    size_ = 0;
    if (++epoch_ == 0) {
      slots_.assign(slots_.size(), Slot{});
      epoch_ = 1;
    }
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t epoch = 0;
    int32_t value = 0;
  };

  size_t Home(uint64_t key) const { return ((key ^ (key >> 32)) * 0x9e3779b97f4a7c15ULL >> 20) & (slots_.size() - 1); }
  size_t Next(size_t i) const { return (i + 1) & (slots_.size() - 1); }

  void Grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.epoch == epoch_) (*this)[slot.key] = slot.value;
    }
  }

  std::vector<Slot> slots_;  // a power of two
  size_t size_ = 0;
  uint32_t epoch_ = 1;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_FLAT_INDEX_H_
