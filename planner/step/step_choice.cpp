#include "planner/step/step_choice.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

namespace tidetape::planner {
namespace {

// Shares of the relaxation's bytes are tried down to this difference.
constexpr double kFinestShare = 1.0 / 1024;

// What block memory is there for a choice, where the blocks before it save so much.
class Limit {
 public:
  Limit(const PlanningProblem& problem, int64_t limit, const LearnOwnPeak& learn)
      : problem_(problem), limit_(limit), learn_(learn) {}

  bool Allows(size_t b, Choice& choice, int64_t saved_before) const {
    const BlockInstance& block = problem_.blocks[b];
    if (block.forward_base_bytes + saved_before + choice.saved_bytes > limit_) return false;
    const int64_t room = limit_ - block.backward_base_bytes - saved_before;
    if (choice.own_peak_bytes <= room) return true;
    if (choice.own_peak_bytes - choice.doubt_bytes > room) return false;
    if (choice.doubt_bytes > 0) learn_(b, choice);
    return choice.own_peak_bytes <= room;
  }

  // The leanest allowed choice of each block in turn: nothing leaves the later blocks more room.
  std::optional<std::vector<int32_t>> LeanestPicks(Choices& choices) const {
    std::vector<int32_t> picks;
    int64_t saved = 0;
    for (size_t b = 0; b < choices.size(); ++b) {
      const auto pick =
          std::find_if(choices[b].begin(), choices[b].end(), [&](Choice& choice) { return Allows(b, choice, saved); });
      if (pick == choices[b].end()) return std::nullopt;
      picks.push_back(static_cast<int32_t>(pick - choices[b].begin()));
      saved += pick->saved_bytes;
    }
    if (std::max(problem_.head_peak_bytes + saved, problem_.optimizer_peak_bytes) > limit_) return std::nullopt;
    return picks;
  }

  // Each block in turn as fast as the bytes allow that it and the blocks before it save in the relaxation, of which a share is
  // used, or else as lean as it can be. Nullopt where that leads beyond the limit.
  std::optional<std::vector<int32_t>> RoundedPicks(Choices& choices, const std::vector<int64_t>& relaxed_bytes,
                                                   double share) const {
    std::vector<int32_t> picks;
    int64_t saved = 0, relaxed = 0;
    for (size_t b = 0; b < choices.size(); ++b) {
      std::vector<Choice>& list = choices[b];
      const int64_t leanest = list.front().saved_bytes;
      relaxed += leanest + static_cast<int64_t>(share * static_cast<double>(relaxed_bytes[b] - leanest));
      const auto end = std::partition_point(list.begin(), list.end(),
                                            [&](const Choice& choice) { return saved + choice.saved_bytes <= relaxed; });
      // From the richest on, which are mostly the fastest, so that few own peaks are asked for.
      auto pick = list.end();
      for (auto choice = end; choice != list.begin();) {
        --choice;
        if ((pick == list.end() || choice->seconds < pick->seconds) && Allows(b, *choice, saved)) pick = choice;
      }
      if (pick == list.end()) pick = std::find_if(end, list.end(), [&](Choice& choice) { return Allows(b, choice, saved); });
      if (pick == list.end()) return std::nullopt;
      picks.push_back(static_cast<int32_t>(pick - list.begin()));
      saved += pick->saved_bytes;
    }
    if (std::max(problem_.head_peak_bytes + saved, problem_.optimizer_peak_bytes) > limit_) return std::nullopt;
    return picks;
  }

  // Exchanges one block's pick for a faster one, the largest gain first, as long as the limit allows one.
  void Improve(Choices& choices, std::vector<int32_t>& picks) const {
    const size_t blocks = picks.size();
    std::vector<int64_t> saved_before(blocks), room(blocks);
    while (true) {
      FindRoom(choices, picks, saved_before, room);
      double best_gain = 0;
      size_t best_block = 0;
      int32_t best_pick = -1;
      for (size_t b = 0; b < blocks; ++b) {
        const Choice& pick = choices[b][picks[b]];
        for (size_t c = choices[b].size(); c-- > 0;) {  // the richest first, as above
          Choice& choice = choices[b][c];
          if (choice.saved_bytes - pick.saved_bytes > room[b] || pick.seconds - choice.seconds <= best_gain) continue;
          if (!Allows(b, choice, saved_before[b])) continue;
          best_gain = pick.seconds - choice.seconds;
          best_block = b;
          best_pick = static_cast<int32_t>(c);
        }
      }
      if (best_pick < 0) return;
      picks[best_block] = best_pick;
    }
  }

 private:
  // By block: bytes saved before it, and how much more it may save for all that comes after its forward.
  void FindRoom(Choices& choices, const std::vector<int32_t>& picks, std::vector<int64_t>& saved_before,
                std::vector<int64_t>& room) const {
    int64_t saved = 0;
    for (size_t b = 0; b < picks.size(); ++b) {
      saved_before[b] = saved;
      saved += choices[b][picks[b]].saved_bytes;
    }
    int64_t after = limit_ - problem_.head_peak_bytes - saved;
    for (size_t b = picks.size(); b-- > 0;) {
      const BlockInstance& block = problem_.blocks[b];
      Choice& pick = choices[b][picks[b]];
      after = std::min(after, limit_ - block.forward_base_bytes - saved_before[b] - pick.saved_bytes);
      room[b] = after;
      const int64_t own_room = limit_ - block.backward_base_bytes - saved_before[b];
      if (own_room - pick.own_peak_bytes < after && pick.doubt_bytes > 0) learn_(b, pick);
      after = std::min(after, own_room - pick.own_peak_bytes);
    }
  }

  const PlanningProblem& problem_;
  const int64_t limit_;
  const LearnOwnPeak& learn_;
};

struct State {
  int64_t saved_bytes = 0;
  double seconds = std::numeric_limits<double>::infinity();
  double excess = 0;  // seconds beyond the relaxation's prices
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

}  // namespace

std::vector<BlockLeast> LeastOf(const Choices& choices) {
  std::vector<BlockLeast> least;
  for (const std::vector<Choice>& list : choices) {
    BlockLeast block{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
    for (const Choice& choice : list) {
      block.saved_bytes = std::min(block.saved_bytes, choice.saved_bytes);
      block.own_peak_bytes = std::min(block.own_peak_bytes, choice.own_peak_bytes - choice.doubt_bytes);
    }
    least.push_back(block);
  }
  return least;
}

std::vector<BlockMemory> MemoryOf(const Choices& choices, const std::vector<int32_t>& picks) {
  std::vector<BlockMemory> memory;
  for (size_t b = 0; b < picks.size(); ++b)
    memory.push_back({choices[b][picks[b]].saved_bytes, choices[b][picks[b]].own_peak_bytes});
  return memory;
}

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
    if (slower != least_peaks.begin() && std::prev(slower)->second <= choice.own_peak_bytes - choice.doubt_bytes) continue;
    kept.push_back(choice);
    if (slower != least_peaks.begin() && std::prev(slower)->second <= choice.own_peak_bytes) continue;
    auto last = slower;
    while (last != least_peaks.end() && last->second >= choice.own_peak_bytes) ++last;
    least_peaks.erase(slower, last);
    least_peaks[choice.seconds] = choice.own_peak_bytes;
  }
  choices = std::move(kept);
}

LeastStep FindLeastStep(const PlanningProblem& problem, Choices& choices, const LearnOwnPeak& learn) {
  const std::vector<int32_t> leanest(choices.size(), 0);
  int64_t low = 0, high = FindStepPeak(problem, MemoryOf(choices, leanest)).bytes;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (Limit(problem, middle, learn).LeanestPicks(choices).has_value()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::vector<int32_t> picks = *Limit(problem, high, learn).LeanestPicks(choices);
  for (size_t b = 0; b < picks.size(); ++b) {
    if (Choice& pick = choices[b][picks[b]]; pick.doubt_bytes > 0) learn(b, pick);
  }
  return {FindStepPeak(problem, MemoryOf(choices, picks)), std::move(picks)};
}

std::optional<std::vector<int32_t>> QuickPicks(const PlanningProblem& problem, Choices& choices, int64_t bytes,
                                               const StepBound& relaxation, const LearnOwnPeak& learn) {
  const Limit limit(problem, bytes, learn);
  std::optional<std::vector<int32_t>> picks = limit.RoundedPicks(choices, relaxation.saved_bytes, 1);
  if (!picks.has_value()) {
    // The relaxation leaves the last blocks too little room for their own peaks: the largest share that does not.
    picks = limit.LeanestPicks(choices);
    double low = 0;
    for (double step = 0.5; picks.has_value() && step > kFinestShare; step /= 2) {
      auto more = limit.RoundedPicks(choices, relaxation.saved_bytes, low + step);
      if (!more.has_value()) continue;
      picks = std::move(more);
      low += step;
    }
  }
  if (picks.has_value()) limit.Improve(choices, *picks);
  return picks;
}

std::optional<std::vector<int32_t>> BestPicks(const PlanningProblem& problem, Choices& choices, int64_t bytes,
                                              const StepBound& relaxation, double most_seconds, const LearnOwnPeak& learn) {
  const auto prefix_limits = PrefixLimits(problem, LeastOf(choices), bytes);
  if (!prefix_limits.has_value()) return std::nullopt;
  const Limit limit(problem, bytes, learn);
  const double most_excess = (most_seconds - relaxation.seconds) + 1e-9 * most_seconds;

  int64_t most = 0;
  for (const std::vector<Choice>& list : choices) most += list.back().saved_bytes;
  if (!prefix_limits->empty()) most = std::min(most, prefix_limits->back());
  const double buckets_a_byte = static_cast<double>(kBuckets) / static_cast<double>(most + 1);

  std::vector<std::vector<State>> layers{{State{.saved_bytes = 0, .seconds = 0}}};
  std::vector<State> buckets(kBuckets + 1);  // one more for what rounding lifts
  for (size_t b = 0; b < choices.size(); ++b) {
    std::fill(buckets.begin(), buckets.end(), State{});
    State leanest{.saved_bytes = std::numeric_limits<int64_t>::max()};
    const std::vector<State>& states = layers.back();
    for (size_t c = 0; c < choices[b].size(); ++c) {
      Choice& choice = choices[b][c];
      const double excess = std::max(0.0, ExcessSeconds(relaxation, b, choice.saved_bytes, choice.seconds));
      if (excess > most_excess) continue;
      for (size_t s = 0; s < states.size(); ++s) {
        if (states[s].excess + excess > most_excess) continue;
        // States come by rising bytes.
        if (states[s].saved_bytes + choice.saved_bytes > (*prefix_limits)[b]) break;
        if (!limit.Allows(b, choice, states[s].saved_bytes)) break;
        const State next{.saved_bytes = states[s].saved_bytes + choice.saved_bytes,
                         .seconds = states[s].seconds + choice.seconds,
                         .excess = states[s].excess + excess,
                         .parent = static_cast<int32_t>(s),
                         .pick = static_cast<int32_t>(c)};
        State& best = buckets[static_cast<size_t>(static_cast<double>(next.saved_bytes) * buckets_a_byte)];
        if (Faster(next, best)) best = next;
        if (Leaner(next, leanest)) leanest = next;
      }
    }
    if (!leanest.Reached()) return std::nullopt;
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
  limit.Improve(choices, picks);
  if (SecondsOf(choices, picks) >= most_seconds) return std::nullopt;
  return picks;
}

double SecondsOf(const Choices& choices, const std::vector<int32_t>& picks) {
  double seconds = 0;
  for (size_t b = 0; b < picks.size(); ++b) seconds += choices[b][picks[b]].seconds;
  return seconds;
}

}  // namespace tidetape::planner
