#include "planner/tape/replay_simulation.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

namespace tidetape::planner {
namespace {

// A set of ops that is read in program order.
class OpSet {
 public:
  explicit OpSet(size_t ops) : words_(ops / 64 + 1, 0) {}
  void Add(int32_t op) {
    const size_t word = op / 64;
    words_[word] |= uint64_t{1} << (op % 64);
    first_word_ = std::min(first_word_, word);
  }
  void Remove(int32_t op) { words_[op / 64] &= ~(uint64_t{1} << (op % 64)); }
  // The first one, or -1.
  int32_t First() {
    while (first_word_ < words_.size() && words_[first_word_] == 0) ++first_word_;
    return Next(static_cast<int32_t>(64 * first_word_));
  }
  // The first one at or after `op`, or -1.
  int32_t Next(int32_t op) const {
    size_t word = op / 64;
    if (word >= words_.size()) return -1;
    for (uint64_t bits = words_[word] >> (op % 64) << (op % 64);; bits = words_[word]) {
      if (bits != 0) return static_cast<int32_t>(64 * word) + std::countr_zero(bits);
      if (++word == words_.size()) return -1;
    }
  }

 private:
  std::vector<uint64_t> words_;
  size_t first_word_ = 0;  // none before it
};

class Simulator {
 public:
  Simulator(const TapeIndex& index, const ReplaySet& set)
      : index_(index),
        set_(set),
        there_(set.saved),
        readings_(set.saved.size(), 0),
        held_(set.saved.size(), false),
        done_(set.replayed.size(), false),
        suspects_(set.replayed.size()) {
    alive_ = set.saved_bytes;
    for (size_t i = 0; i < done_.size(); ++i) {
      if (!set.replayed[i]) continue;
      suspects_.Add(static_cast<int32_t>(i));
      for (const OpInput& input : index.inputs(i)) readings_[input.storage] += input.declared;
    }
    for (size_t s = 0; s < held_.size(); ++s) held_[s] = index.consumed(s);
  }

  ReplayProfile::Event RunEvent(std::span<const int32_t> reads, std::span<const int32_t> releases) {
    ReplayProfile::Event event;
    for (int32_t s : reads) {
      // A storage that is there in an earlier version only is missing, too.
      if (!index_.intermediate(s) || set_.saved[s]) continue;
      FindMissingProducers(s);
      for (int32_t op : missing_) event.replaying_bytes = std::max(event.replaying_bytes, Run(op));
      if (missing_.empty()) continue;
      for (int32_t op = suspects_.First(); op >= 0; op = suspects_.Next(op + 1)) {
        suspects_.Remove(op);
        if (!set_.replayed[op] || done_[op] || !Shrinks(op)) continue;
        done_[op] = true;
        event.replaying_bytes = std::max(event.replaying_bytes, Run(op));
      }
    }
    event.reading_bytes = alive_;
    for (int32_t s : releases) {
      if (!held_[s]) continue;
      held_[s] = false;
      FreeIfUnread(s);
      SuspectAll(s);
    }
    return event;
  }

 private:
  // Ops on which the storage depends that have not run, in program order; marks them as done.
  void FindMissingProducers(int32_t storage) {
    missing_.clear();
    const auto visit = [&](int32_t op) {
      if (!set_.replayed[op] || done_[op]) return;
      done_[op] = true;
      missing_.push_back(op);
    };
    visit(index_.last_writer(storage));
    for (size_t next = 0; next < missing_.size(); ++next) {
      const int32_t op = missing_[next];
      for (const OpInput& input : index_.inputs(op)) {
        if (!(input.last && set_.saved[input.storage])) visit(input.producer);
      }
      for (int32_t reader : index_.readers_before(op)) visit(reader);
    }
    std::sort(missing_.begin(), missing_.end());
  }

  void Suspect(int32_t op) {
    if (set_.replayed[op] && !done_[op]) suspects_.Add(op);
  }

  // What its ops free or make may have changed with the storage.
  void SuspectAll(int32_t s) {
    for (int32_t op : index_.touching(s)) Suspect(op);
  }

  // Ops that waited for the op to write the storage: the readers of the version, and the next writer.
  void SuspectReaders(int32_t s, int32_t writer) {
    const std::span<const int32_t> touching = index_.touching(s);
    const int32_t next = NextWriter(s, writer);
    for (auto op = std::upper_bound(touching.begin(), touching.end(), writer); op != touching.end() && *op <= next; ++op) {
      Suspect(*op);
    }
  }

  // The first op after `op` that writes the storage; where there is none, a number above all ops'.
  int32_t NextWriter(int32_t s, int32_t op) const {
    const std::span<const int32_t> writers = index_.writers(s);
    const auto next = std::upper_bound(writers.begin(), writers.end(), op);
    return next == writers.end() ? std::numeric_limits<int32_t>::max() : *next;
  }

  bool Reads(int32_t op, int32_t s) const {
    return std::any_of(index_.inputs(op).begin(), index_.inputs(op).end(),
                       [s](const OpInput& input) { return input.storage == s; });
  }

  // All that the op reads is there, and it frees at least what it makes.
  bool Shrinks(int32_t op) const {
    int64_t grows = 0;
    for (const OpInput& input : index_.inputs(op)) {
      const int32_t s = input.storage;
      if (input.producer >= 0 && !done_[input.producer] && !(input.last && set_.saved[s])) return false;
      if (there_[s] && !held_[s] && readings_[s] == input.declared) grows -= Bytes(s);
    }
    for (int32_t reader : index_.readers_before(op)) {
      if (set_.replayed[reader] && !done_[reader]) return false;
    }
    for (int32_t s : index_.outputs(op)) {
      const bool stays = held_[s] || readings_[s] > 0;
      if (stays != there_[s] && !Reads(op, s)) grows += stays ? Bytes(s) : -Bytes(s);
    }
    return grows <= 0;
  }

  // The most planned and workspace bytes while the op runs. Suspects the ops whose Shrinks() may become true by it, of a storage
  // with many writers and readers only those: each op must cost no more than its own readers.
  int64_t Run(int32_t op) {
    for (int32_t s : index_.outputs(op)) {
      if (there_[s]) continue;
      there_[s] = true;
      alive_ += Bytes(s);
      if (index_.rewritten(s)) SuspectAll(s);  // its other writers need not make it
    }
    const int64_t bytes = alive_ + index_.workspace_bytes(op);
    for (const OpInput& input : index_.inputs(op)) {
      readings_[input.storage] -= input.declared;
      FreeIfUnread(input.storage);
    }
    for (int32_t s : index_.outputs(op)) FreeIfUnread(s);
    for (const OpInput& input : index_.inputs(op)) {
      const int32_t s = input.storage;
      // While several ops are still to read it, none of them frees it.
      if (input.declared && readings_[s] <= 1) SuspectAll(s);
      if (!input.last) {
        if (const int32_t next = NextWriter(s, op); next < static_cast<int32_t>(done_.size())) Suspect(next);
      }
    }
    for (int32_t s : index_.outputs(op)) {
      index_.rewritten(s) ? SuspectReaders(s, op) : SuspectAll(s);
    }
    return bytes;
  }

  // Saved storages that nothing reads (only a must_save one has a reason to be) stay to the end.
  void FreeIfUnread(int32_t s) {
    if (!there_[s] || held_[s] || readings_[s] > 0) return;
    there_[s] = false;
    alive_ -= Bytes(s);
  }

  int64_t Bytes(int32_t s) const { return set_.saved[s] ? index_.save_bytes(s) : index_.bytes(s); }

  const TapeIndex& index_;
  const ReplaySet& set_;
  Flags there_;
  std::vector<int32_t> readings_;  // by ops that are still to be replayed
  Flags held_;                     // consumed and not released
  Flags done_;                     // by op: replayed already
  OpSet suspects_;                 // ops whose Shrinks() may have become true since it was last asked
  std::vector<int32_t> missing_;
  int64_t alive_ = 0;
};

}  // namespace

ReplayProfile SimulateReplay(const TapeIndex& index, const ReplaySet& set) {
  const BlockTape& tape = index.tape();
  Simulator simulator(index, set);
  ReplayProfile profile;
  if (tape.backward.empty()) profile.events.push_back(simulator.RunEvent(tape.consumed, tape.consumed));
  for (const BackwardEvent& event : tape.backward) profile.events.push_back(simulator.RunEvent(event.reads, event.releases));
  return profile;
}

LiveBytes LiveBeside(const BlockTape& tape, const BlockInstance& instance, size_t event) {
  if (tape.backward.empty()) return {0, instance.backward_transient_bytes};
  return {instance.start_live_bytes.empty() ? tape.backward[event].start_live_bytes : instance.start_live_bytes[event],
          instance.gradient_live_bytes.empty() ? tape.backward[event].gradient_live_bytes : instance.gradient_live_bytes[event]};
}

namespace {

int64_t PeakAt(const BlockTape& tape, const BlockInstance& instance, const ReplayProfile& profile, size_t e) {
  const LiveBytes beside = LiveBeside(tape, instance, e);
  const ReplayProfile::Event& event = profile.events[e];
  const int64_t reading = beside.gradient + event.reading_bytes;
  return event.replaying_bytes >= 0 ? std::max(reading, beside.start + event.replaying_bytes) : reading;
}

}  // namespace

int64_t OwnPeakBytes(const BlockTape& tape, const BlockInstance& instance, const ReplayProfile& profile) {
  int64_t peak = std::numeric_limits<int64_t>::min();
  for (size_t e = 0; e < profile.events.size(); ++e) peak = std::max(peak, PeakAt(tape, instance, profile, e));
  return peak;
}

size_t OwnPeakEvent(const BlockTape& tape, const BlockInstance& instance, const ReplayProfile& profile) {
  size_t peak = 0;
  for (size_t e = 1; e < profile.events.size(); ++e) {
    if (PeakAt(tape, instance, profile, e) > PeakAt(tape, instance, profile, peak)) peak = e;
  }
  return peak;
}

}  // namespace tidetape::planner
