#include "planner/testing/enumeration.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace tidetape::planner {

Enumeration::Enumeration(const BlockTape& tape) : tape_(tape) {
  std::map<int32_t, int> bit_of;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    if (tape.storages[s].kind != StorageKind::kIntermediate) continue;
    bit_of[static_cast<int32_t>(s)] = static_cast<int>(storage_of_bit_.size());
    storage_of_bit_.push_back(static_cast<int32_t>(s));
  }
  std::map<int32_t, std::vector<int>> writers;
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    for (int32_t s : std::set<int32_t>(tape.ops[i].writes.begin(), tape.ops[i].writes.end())) {
      writers[s].push_back(static_cast<int>(i));
    }
  }
  const auto is_free = [&](int32_t s) { return bit_of.count(s) == 0; };

  for (int i = 0; i < static_cast<int>(tape.ops.size()); ++i) {
    const Op& op = tape.ops[i];
    OpBits bits{.replayable = op.replayable, .seconds = op.cost_seconds};
    // What the op stands on: contents that were there just before it.
    std::set<int32_t> contents(op.reads.begin(), op.reads.end());
    for (int32_t s : op.writes) {
      if (is_free(s)) {
        bits.replayable = false;
        continue;
      }
      if (writers[s].size() > 1) bits.spoils |= 1u << bit_of[s];
      if (writers[s].front() < i) contents.insert(s);
    }
    for (int32_t s : contents) {
      const std::vector<int>& of = writers[s];
      const auto next = std::lower_bound(of.begin(), of.end(), i);
      const bool last = next == of.end();
      if (is_free(s)) {
        bits.replayable = bits.replayable && last;
        continue;
      }
      if (last) {
        bits.reads.push_back(bit_of[s]);
        continue;
      }
      bits.spoils |= 1u << bit_of[s];
      if (next == of.begin()) {
        bits.replayable = false;  // a content that came from outside and is gone
      } else {
        bits.needs |= uint64_t{1} << *std::prev(next);
      }
    }
    ops_.push_back(std::move(bits));
  }
  for (int32_t s : storage_of_bit_) last_writer_.push_back(writers[s].empty() ? -1 : writers[s].back());
  for (int32_t s : tape.consumed) {
    if (!is_free(s)) consumed_ |= 1u << bit_of[s];
  }

  uint32_t must = 0, must_not = 0;
  for (size_t bit = 0; bit < storage_of_bit_.size(); ++bit) {
    const Storage& storage = tape.storages[storage_of_bit_[bit]];
    must |= static_cast<uint32_t>(storage.must_save) << bit;
    must_not |= static_cast<uint32_t>(storage.must_recompute) << bit;
  }
  for (uint64_t set = 0; set < uint64_t{1} << storage_of_bit_.size(); ++set) {
    const auto saved = static_cast<uint32_t>(set);
    if ((saved & must) != must || (saved & must_not) != 0) continue;
    const std::optional<uint64_t> replayed = Replayed(saved);
    if (!replayed.has_value()) continue;
    Plan plan{.saved = saved};
    for (size_t bit = 0; bit < storage_of_bit_.size(); ++bit) {
      const Storage& storage = tape.storages[storage_of_bit_[bit]];
      if (saved >> bit & 1 && !storage.held_anyway) plan.bytes += storage.bytes;
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (*replayed >> i & 1) plan.seconds += ops_[i].seconds;
    }
    plans_.push_back(plan);
  }
}

// Nothing where the plan cannot be followed. Ops come in program order, so whatever an op needs comes before it.
std::optional<uint64_t> Enumeration::Replayed(uint32_t saved) const {
  uint64_t replayed = 0;
  for (size_t bit = 0; bit < last_writer_.size(); ++bit) {
    if ((consumed_ & ~saved) >> bit & 1) {
      if (last_writer_[bit] < 0) return std::nullopt;
      replayed |= uint64_t{1} << last_writer_[bit];
    }
  }
  for (size_t i = ops_.size(); i-- > 0;) {
    if (!(replayed >> i & 1)) continue;
    const OpBits& op = ops_[i];
    if (!op.replayable || (op.spoils & saved) != 0) return std::nullopt;
    replayed |= op.needs;
    for (int bit : op.reads) {
      if (saved >> bit & 1) continue;
      if (last_writer_[bit] < 0) return std::nullopt;
      replayed |= uint64_t{1} << last_writer_[bit];
    }
  }
  return replayed;
}

std::vector<int32_t> Enumeration::Saved(const Plan& plan) const {
  std::vector<int32_t> saved;
  for (size_t bit = 0; bit < storage_of_bit_.size(); ++bit) {
    if (plan.saved >> bit & 1) saved.push_back(storage_of_bit_[bit]);
  }
  return saved;
}

std::vector<Enumeration::Plan> Enumeration::Best() const {
  std::vector<Plan> sorted = plans_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Plan& a, const Plan& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds; });
  std::vector<Plan> best;
  double seconds = std::numeric_limits<double>::infinity();
  for (const Plan& plan : sorted) {
    if (plan.seconds >= seconds) continue;
    seconds = plan.seconds;
    best.push_back(plan);
  }
  return best;
}

}  // namespace tidetape::planner
