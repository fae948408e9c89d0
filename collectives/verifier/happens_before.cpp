#include "collectives/verifier/happens_before.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

// Who raises what where.
using SignalKey = std::tuple<int32_t, int32_t, int32_t>;  // sender, receiver, index

struct Raise {
  int32_t node = 0;     // of the issue
  int32_t effect = -1;  // -1 for a plain signal
};

struct Claim {
  int32_t node = 0;
  int32_t entry = 0;
  int32_t count = 0;
};

}  // namespace

absl::StatusOr<HappensBefore> HappensBefore::Create(const Programs& programs) {
  HappensBefore relation(programs);
  relation.FindEffects();
  if (absl::Status status = relation.MatchSignals(); !status.ok()) return status;
  if (absl::Status status = relation.Order(); !status.ok()) return status;
  return relation;
}

void HappensBefore::FindEffects() {
  first_node_ = {0};
  for (const auto& program : *programs_) first_node_.push_back(first_node_.back() + static_cast<int32_t>(program.size()));
  effects_of_.resize(first_node_.back());
  signals_of_.resize(first_node_.back());
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    const auto& program = (*programs_)[rank];
    size_t unflushed = effects_.size();
    for (int32_t i = 0; i < static_cast<int32_t>(program.size()); ++i) {
      const ProgramEntry& entry = program[i];
      if (entry.is(StepKind::kFlush)) {
        for (; unflushed < effects_.size(); ++unflushed) effects_[unflushed].flush_entry = i;
      }
      if (!entry.sends()) continue;
      const std::vector<int32_t> one = {entry.get().peer};
      for (int32_t peer : entry.is(StepKind::kPut) ? one : entry.schedule->peer_sets[entry.get().peer]) {
        effects_of_[node(rank, i)].push_back(static_cast<int32_t>(effects_.size()));
        effects_.push_back({rank, i, peer});
      }
    }
  }
}

absl::Status HappensBefore::MatchSignals() {
  std::map<SignalKey, std::vector<Raise>> raises;
  std::map<SignalKey, std::vector<Claim>> claims;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    const auto& program = (*programs_)[rank];
    for (int32_t i = 0; i < static_cast<int32_t>(program.size()); ++i) {
      const ProgramEntry& entry = program[i];
      const int32_t at = node(rank, i);
      for (int32_t effect : effects_of_[at]) {
        raises[{rank, effects_[effect].receiver, entry.get().signal}].push_back({at, effect});
      }
      if (entry.is(StepKind::kSignal)) raises[{rank, entry.get().peer, entry.get().signal}].push_back({at, -1});
      if (entry.is(StepKind::kWait)) claims[{entry.get().peer, rank, entry.get().signal}].push_back({at, i, entry.get().count});
    }
  }
  for (const auto& [key, waits] : claims) {
    const auto& [sender, receiver, signal] = key;
    const std::vector<Raise>& sent = raises[key];
    size_t served = 0;
    for (const Claim& wait : waits) {
      if (served + wait.count > sent.size()) {
        return absl::FailedPreconditionError(
            absl::StrCat("waits for more signals than are sent: ", EntryText(receiver, (*programs_)[receiver][wait.entry]),
                         "; rank ", sender, " sends ", sent.size(), " in all, ", served, " of them waited for before"));
      }
      for (size_t k = served; k < served + wait.count; ++k) {
        if (sent[k].effect >= 0) {
          effects_[sent[k].effect].wait_entry = wait.entry;
        } else {
          signals_of_[sent[k].node].push_back(wait.node);
        }
      }
      served += wait.count;
    }
  }
  for (const auto& [key, sent] : raises) {
    const auto& [sender, receiver, signal] = key;
    int64_t claimed = 0;
    for (const Claim& wait : claims[key]) claimed += wait.count;
    if (claimed < static_cast<int64_t>(sent.size())) {
      const Event first = EventOf(sent[claimed].node);
      return absl::FailedPreconditionError(absl::StrCat(
          "signals are never waited for: rank ", receiver, " waits for ", claimed, " of the ", sent.size(), " on index ", signal,
          " that rank ", sender, " sends; the first one left is of ", EntryText(sender, (*programs_)[sender][first.entry])));
    }
  }
  return absl::OkStatus();
}

Event HappensBefore::EventOf(int32_t node) const {
  if (node >= first_node_.back()) {
    const int32_t effect = node - first_node_.back();
    return {effects_[effect].rank, effects_[effect].entry, effect};
  }
  const auto next = std::upper_bound(first_node_.begin(), first_node_.end(), node);
  const int32_t rank = static_cast<int32_t>(next - first_node_.begin()) - 1;
  return {rank, node - first_node_[rank], -1};
}

absl::Status HappensBefore::Order() {
  const int32_t nodes = first_node_.back() + static_cast<int32_t>(effects_.size());
  std::vector<int32_t> open(nodes, 0);  // predecessors that have not come yet
  const auto successors = [&](int32_t at, auto visit) {
    const Event event = EventOf(at);
    if (event.effect >= 0) {
      const Effect& effect = effects_[event.effect];
      if (effect.wait_entry >= 0) visit(node(effect.receiver, effect.wait_entry));
      if (effect.flush_entry >= 0) visit(node(effect.rank, effect.flush_entry));
      return;
    }
    if (at + 1 < first_node_[event.rank + 1]) visit(at + 1);
    for (int32_t effect : effects_of_[at]) visit(effect_node(effect));
    for (int32_t wait : signals_of_[at]) visit(wait);
  };
  for (int32_t at = 0; at < nodes; ++at) successors(at, [&](int32_t next) { ++open[next]; });

  clocks_.assign(int64_t{first_node_.back()} * ranks(), 0);
  std::vector<int32_t> ready;
  for (int32_t at = 0; at < nodes; ++at) {
    if (open[at] == 0) ready.push_back(at);
  }
  const auto merge = [&](const Event& from, const Event& to) {
    int32_t* later = clocks_.data() + int64_t{node(to.rank, to.entry)} * ranks();
    const int32_t* earlier = clock(from.rank, from.entry);
    for (int32_t r = 0; r < ranks(); ++r) later[r] = std::max(later[r], earlier[r]);
  };
  for (size_t i = 0; i < ready.size(); ++i) {
    const int32_t at = ready[i];
    const Event event = EventOf(at);
    order_.push_back(event);
    if (event.effect < 0) clocks_[int64_t{at} * ranks() + event.rank] = event.entry + 1;
    successors(at, [&](int32_t next) {
      // What an effect stands on is what its issue stands on.
      if (const Event to = EventOf(next); to.effect < 0) merge(event, to);
      if (--open[next] == 0) ready.push_back(next);
    });
  }
  if (static_cast<int32_t>(order_.size()) == nodes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("deadlock: ", CycleText(open)));
}

// Every node that is left has a predecessor that is left: going back must come round.
std::string HappensBefore::CycleText(const std::vector<int32_t>& open) const {
  std::map<int32_t, int32_t> before;  // one predecessor that is left, by node
  const auto link = [&](int32_t from, int32_t to) {
    if (open[from] > 0) before[to] = from;
  };
  for (int32_t at = 0; at < first_node_.back(); ++at) {
    const Event event = EventOf(at);
    if (at + 1 < first_node_[event.rank + 1]) link(at, at + 1);
  }
  for (int32_t at = 0; at < first_node_.back(); ++at) {
    for (int32_t effect : effects_of_[at]) {
      link(at, effect_node(effect));
      const Effect& e = effects_[effect];
      if (e.flush_entry >= 0) link(effect_node(effect), node(e.rank, e.flush_entry));
      if (e.wait_entry >= 0) link(effect_node(effect), node(e.receiver, e.wait_entry));
    }
    for (int32_t wait : signals_of_[at]) link(at, wait);
  }
  int32_t at = before.begin()->first;
  std::vector<int32_t> path;
  while (std::find(path.begin(), path.end(), at) == path.end()) {
    path.push_back(at);
    at = before.at(at);
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::string text;
  // Waits say it all; program order between them is plain.
  for (int32_t member : path) {
    const Event event = EventOf(member);
    const ProgramEntry& entry = (*programs_)[event.rank][event.entry];
    if (event.effect >= 0 || !entry.is(StepKind::kWait)) continue;
    absl::StrAppend(&text, text.empty() ? "" : " <- ", EntryText(event.rank, entry));
  }
  return text;
}

bool HappensBefore::Before(const Event& first, const Event& second) const {
  // A second event that is an effect begins no earlier than its issue ends.
  const int32_t* seen = clock(second.rank, second.entry);
  if (first.effect < 0) {
    // An entry is before its own effects, and not before itself.
    if (first.rank == second.rank && first.entry == second.entry) return second.effect >= 0;
    return seen[first.rank] > first.entry;
  }
  const Effect& effect = effects_[first.effect];
  return (effect.wait_entry >= 0 && seen[effect.receiver] > effect.wait_entry) ||
         (effect.flush_entry >= 0 && seen[effect.rank] > effect.flush_entry);
}

}  // namespace tidetape::collectives
