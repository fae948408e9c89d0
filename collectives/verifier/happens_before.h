// Which steps of the ranks' programs are certain to come before which others, in every interleaving.
//
// Model. A rank runs its entries in order. A put or multicast has an *effect* for each receiver: reading the source and writing the
// destination, at any time after its issue, before its signal is counted, and before a later flush of the sender ends. A wait ends
// when so many signals of one sender and index have come that all waits on them up to and including this one are served. Signals
// of one sender and index are counted in the order of their issue; nothing else is assumed of the transport.
//
// So the k-th signal always serves the same wait, whatever the timing: the relation "comes before" is the same in all executions,
// and it is the reachability of one graph: program order, issue to effect, effect (or signal) to the wait that it serves, effect to
// the sender's next flush. If the graph has no cycle and every wait has its signals, then some rank can always go on until all are
// done: no execution deadlocks. If it has one, no execution gets past it. Nothing is sampled: the check covers every interleaving.
#ifndef TIDETAPE_COLLECTIVES_VERIFIER_HAPPENS_BEFORE_H_
#define TIDETAPE_COLLECTIVES_VERIFIER_HAPPENS_BEFORE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/verifier/program.h"

namespace tidetape::collectives {

// A rank's entry, or the effect of one on a receiver.
struct Event {
  int32_t rank = 0;
  int32_t entry = 0;
  int32_t effect = -1;  // HappensBefore::effects(); -1 for the entry itself

  friend bool operator==(const Event&, const Event&) = default;
};

struct Effect {
  int32_t rank = 0, entry = 0;  // the issue
  int32_t receiver = 0;
  int32_t wait_entry = -1;   // at the receiver: the wait that it serves
  int32_t flush_entry = -1;  // at the sender; -1 where none follows
};

class HappensBefore {
 public:
  // FailedPrecondition: "waits for more signals than are sent", "signals are never waited for" or "deadlock", with the ranks and
  // steps (for a deadlock the whole cycle). The programs must outlive the object. Memory: 4 bytes an entry and rank.
  static absl::StatusOr<HappensBefore> Create(const Programs& programs);

  const std::vector<Effect>& effects() const { return effects_; }
  // All events in an order that respects the relation.
  const std::vector<Event>& order() const { return order_; }
  // Whether `first` has ended before `second` begins, in every execution.
  bool Before(const Event& first, const Event& second) const;

 private:
  explicit HappensBefore(const Programs& programs) : programs_(&programs) {}
  void FindEffects();
  absl::Status MatchSignals();
  absl::Status Order();
  std::string CycleText(const std::vector<int32_t>& open) const;

  // Nodes of the graph: all entries rank by rank, then all effects.
  int32_t node(int32_t rank, int32_t entry) const { return first_node_[rank] + entry; }
  int32_t effect_node(int32_t effect) const { return first_node_.back() + effect; }
  Event EventOf(int32_t node) const;
  const int32_t* clock(int32_t rank, int32_t entry) const { return clocks_.data() + int64_t{node(rank, entry)} * ranks(); }
  int32_t ranks() const { return static_cast<int32_t>(programs_->size()); }

  const Programs* programs_;
  std::vector<int32_t> first_node_;  // by rank, and the first effect
  std::vector<Effect> effects_;
  std::vector<std::vector<int32_t>> effects_of_;  // by entry node
  std::vector<std::vector<int32_t>> signals_of_;  // by entry node: waits that its plain signal serves, as nodes
  std::vector<Event> order_;
  std::vector<int32_t> clocks_;  // by entry node and rank: entries of that rank that have begun no later, as a count
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VERIFIER_HAPPENS_BEFORE_H_
