#include "planner/step_choice.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "planner/step_bound.h"

namespace tidetape::planner {
namespace {

std::vector<BlockLeast> LeastOf(const std::vector<std::vector<Choice>>& choices) {
  std::vector<BlockLeast> least;
  for (const std::vector<Choice>& list : choices) {
    BlockLeast block{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
    for (const Choice& choice : list) {
      block.saved_bytes = std::min(block.saved_bytes, choice.saved_bytes);
      block.own_peak_bytes = std::min(block.own_peak_bytes, choice.own_peak_bytes);
    }
    least.push_back(block);
  }
  return least;
}

bool Allowed(const BlockInstance& block, const Choice& choice, int64_t saved_before, int64_t limit) {
  return block.forward_base_bytes + saved_before + choice.saved_bytes <= limit &&
         block.backward_base_bytes + saved_before + choice.own_peak_bytes <= limit;
}

// The leanest allowed choice of each block in turn: nothing leaves the later blocks more room.
std::optional<std::vector<int32_t>> LeanestPicks(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices,
                                                 int64_t limit) {
  std::vector<int32_t> picks;
  int64_t saved = 0;
  for (size_t b = 0; b < choices.size(); ++b) {
    int32_t pick = -1;
    for (size_t c = 0; c < choices[b].size(); ++c) {
      if (!Allowed(problem.blocks[b], choices[b][c], saved, limit)) continue;
      if (pick < 0 || choices[b][c].saved_bytes < choices[b][pick].saved_bytes) pick = static_cast<int32_t>(c);
    }
    if (pick < 0) return std::nullopt;
    picks.push_back(pick);
    saved += choices[b][pick].saved_bytes;
  }
  if (std::max(problem.head_peak_bytes + saved, problem.optimizer_peak_bytes) > limit) return std::nullopt;
  return picks;
}

struct State {
  int64_t saved_bytes = 0;
  double seconds = std::numeric_limits<double>::infinity();
  int32_t parent = -1;
  int32_t pick = -1;

  bool Reached() const { return seconds != std::numeric_limits<double>::infinity(); }
};

bool Faster(const State& a, const State& b) {
  return a.seconds != b.seconds ? a.seconds < b.seconds : a.saved_bytes < b.saved_bytes;
}

bool Leaner(const State& a, const State& b) {
  return a.saved_bytes != b.saved_bytes ? a.saved_bytes < b.saved_bytes : a.seconds < b.seconds;
}

// The dynamic program. Some combination must keep the limit.
std::vector<int32_t> BucketPicks(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices, int64_t limit) {
  const std::vector<int64_t> prefix_limits = *PrefixLimits(problem, LeastOf(choices), limit);

  int64_t most = 0;
  for (const std::vector<Choice>& list : choices) {
    int64_t block = 0;
    for (const Choice& choice : list) block = std::max(block, choice.saved_bytes);
    most += block;
  }
  if (!prefix_limits.empty()) most = std::min(most, prefix_limits.back());
  const double buckets_a_byte = static_cast<double>(kBuckets) / static_cast<double>(most + 1);

  std::vector<std::vector<State>> layers{{State{.saved_bytes = 0, .seconds = 0}}};
  std::vector<State> buckets(kBuckets + 1);  // one more for what rounding lifts
  for (size_t b = 0; b < choices.size(); ++b) {
    std::fill(buckets.begin(), buckets.end(), State{});
    State leanest{.saved_bytes = std::numeric_limits<int64_t>::max()};
    const std::vector<State>& states = layers.back();
    for (size_t c = 0; c < choices[b].size(); ++c) {
      const Choice& choice = choices[b][c];
      for (size_t s = 0; s < states.size(); ++s) {
        // States come by rising bytes.
        if (!Allowed(problem.blocks[b], choice, states[s].saved_bytes, limit)) break;
        const State next{.saved_bytes = states[s].saved_bytes + choice.saved_bytes,
                         .seconds = states[s].seconds + choice.seconds,
                         .parent = static_cast<int32_t>(s),
                         .pick = static_cast<int32_t>(c)};
        if (next.saved_bytes > prefix_limits[b]) break;
        State& best = buckets[static_cast<size_t>(static_cast<double>(next.saved_bytes) * buckets_a_byte)];
        if (Faster(next, best)) best = next;
        if (Leaner(next, leanest)) leanest = next;
      }
    }
    std::vector<State> kept{leanest};
    for (const State& state : buckets) {
      if (state.Reached() && state.seconds < kept.back().seconds) kept.push_back(state);
    }
    layers.push_back(std::move(kept));
  }

  std::vector<int32_t> picks(choices.size());
  int32_t state = static_cast<int32_t>(layers.back().size()) - 1;  // the fastest
  for (size_t b = choices.size(); b-- > 0;) {
    picks[b] = layers[b + 1][state].pick;
    state = layers[b + 1][state].parent;
  }
  return picks;
}

std::vector<BlockMemory> MemoryOf(const std::vector<std::vector<Choice>>& choices, const std::vector<int32_t>& picks) {
  std::vector<BlockMemory> memory;
  for (size_t b = 0; b < picks.size(); ++b)
    memory.push_back({choices[b][picks[b]].saved_bytes, choices[b][picks[b]].own_peak_bytes});
  return memory;
}

double SecondsOf(const std::vector<std::vector<Choice>>& choices, const std::vector<int32_t>& picks) {
  double seconds = 0;
  for (size_t b = 0; b < picks.size(); ++b) seconds += choices[b][picks[b]].seconds;
  return seconds;
}

// Each block in turn as fast as the bytes allow that it and the blocks before it save in the relaxation, or else as lean as it can
// be. Nullopt where that leads beyond the limit.
std::optional<std::vector<int32_t>> RoundedPicks(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices,
                                                 int64_t limit, const std::vector<int64_t>& relaxed_bytes) {
  std::vector<int32_t> picks;
  int64_t saved = 0, relaxed = 0;
  for (size_t b = 0; b < choices.size(); ++b) {
    relaxed += relaxed_bytes[b];
    int32_t leanest = -1, fastest = -1;
    for (size_t c = 0; c < choices[b].size(); ++c) {
      const Choice& choice = choices[b][c];
      if (!Allowed(problem.blocks[b], choice, saved, limit)) continue;
      if (leanest < 0) leanest = static_cast<int32_t>(c);  // choices come by rising bytes
      if (saved + choice.saved_bytes > relaxed) continue;
      if (fastest < 0 || choice.seconds < choices[b][fastest].seconds) fastest = static_cast<int32_t>(c);
    }
    picks.push_back(fastest >= 0 ? fastest : leanest);
    if (picks.back() < 0) return std::nullopt;
    saved += choices[b][picks.back()].saved_bytes;
  }
  if (FindStepPeak(problem, MemoryOf(choices, picks)).bytes > limit) return std::nullopt;
  return picks;
}

// Exchanges one block's pick for a faster one, the largest gain first, as long as the limit allows one.
void Improve(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices, int64_t limit,
             std::vector<int32_t>& picks) {
  const size_t blocks = picks.size();
  std::vector<int64_t> saved_before(blocks), room(blocks);
  while (true) {
    int64_t saved = 0;
    for (size_t b = 0; b < blocks; ++b) {
      saved_before[b] = saved;
      saved += choices[b][picks[b]].saved_bytes;
    }
    // room[b]: how much more block b may save for all that comes after its forward.
    int64_t after = limit - problem.head_peak_bytes - saved;
    for (size_t b = blocks; b-- > 0;) {
      const BlockInstance& block = problem.blocks[b];
      const Choice& pick = choices[b][picks[b]];
      after = std::min(after, limit - block.forward_base_bytes - saved_before[b] - pick.saved_bytes);
      room[b] = after;
      after = std::min(after, limit - block.backward_base_bytes - saved_before[b] - pick.own_peak_bytes);
    }
    double best_gain = 0;
    size_t best_block = 0;
    int32_t best_pick = -1;
    for (size_t b = 0; b < blocks; ++b) {
      const Choice& pick = choices[b][picks[b]];
      for (size_t c = 0; c < choices[b].size(); ++c) {
        const Choice& choice = choices[b][c];
        if (pick.seconds - choice.seconds <= best_gain || choice.saved_bytes - pick.saved_bytes > room[b]) continue;
        if (!Allowed(problem.blocks[b], choice, saved_before[b], limit)) continue;
        best_gain = pick.seconds - choice.seconds;
        best_block = b;
        best_pick = static_cast<int32_t>(c);
      }
    }
    if (best_pick < 0) return;
    picks[best_block] = best_pick;
  }
}

}  // namespace

void KeepParetoChoices(std::vector<Choice>& choices) {
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    if (a.saved_bytes != b.saved_bytes) return a.saved_bytes < b.saved_bytes;
    if (a.seconds != b.seconds) return a.seconds < b.seconds;
    return a.own_peak_bytes < b.own_peak_bytes;
  });
  std::vector<Choice> kept;
  std::map<double, int64_t> least_peaks;  // of what is kept: seconds to own peak, both falling against each other
  for (const Choice& choice : choices) {
    const auto slower = least_peaks.upper_bound(choice.seconds);
    if (slower != least_peaks.begin() && std::prev(slower)->second <= choice.own_peak_bytes) continue;
    auto last = slower;
    while (last != least_peaks.end() && last->second >= choice.own_peak_bytes) ++last;
    least_peaks.erase(slower, last);
    least_peaks[choice.seconds] = choice.own_peak_bytes;
    kept.push_back(choice);
  }
  choices = std::move(kept);
}

LeastStep FindLeastStep(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices) {
  std::vector<BlockMemory> leanest;
  for (const std::vector<Choice>& list : choices) {
    const Choice& choice =
        *std::min_element(list.begin(), list.end(), [](const Choice& a, const Choice& b) { return a.saved_bytes < b.saved_bytes; });
    leanest.push_back({choice.saved_bytes, choice.own_peak_bytes});
  }
  int64_t low = 0, high = FindStepPeak(problem, leanest).bytes;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (LeanestPicks(problem, choices, middle).has_value()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::vector<int32_t> picks = *LeanestPicks(problem, choices, high);
  const StepPeak peak = FindStepPeak(problem, MemoryOf(choices, picks));
  return {peak, std::move(picks)};
}

std::optional<std::vector<int32_t>> PickChoices(const PlanningProblem& problem, const std::vector<std::vector<Choice>>& choices,
                                                int64_t limit, const std::vector<int64_t>& relaxed_bytes) {
  if (!LeanestPicks(problem, choices, limit).has_value()) return std::nullopt;
  std::vector<int32_t> picks = BucketPicks(problem, choices, limit);
  Improve(problem, choices, limit, picks);
  std::optional<std::vector<int32_t>> rounded = RoundedPicks(problem, choices, limit, relaxed_bytes);
  if (!rounded.has_value()) return picks;
  Improve(problem, choices, limit, *rounded);
  return SecondsOf(choices, *rounded) < SecondsOf(choices, picks) ? *rounded : picks;
}

}  // namespace tidetape::planner
