#include "planner/step/moving_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace tidetape::planner {
namespace {

// The dynamic program tries so many (state, choice) pairs.
constexpr double kPairs = 2e6;
constexpr double kMostStates = 8192;
constexpr int kMostPasses = 8;

enum class Goal { kSeconds, kPeak };

struct State {
  int64_t saved = 0;
  int64_t moved = 0;
  int64_t last_moved = 0;
  int64_t peak = 0;  // of forwards and backwards so far
  double seconds = 0;
  int32_t from = -1;    // of the states before the block
  int32_t choice = -1;  // of the block

  std::pair<double, double> Cost(Goal goal) const {
    const std::pair<double, double> cost{seconds, static_cast<double>(peak)};
    return goal == Goal::kSeconds ? cost : std::pair{cost.second, cost.first};
  }
};

std::vector<BlockMemory> MemoryOf(const std::vector<std::vector<MovingChoice>>& choices, const std::vector<int32_t>& picks) {
  std::vector<BlockMemory> memory;
  for (size_t b = 0; b < picks.size(); ++b) memory.push_back(choices[b][picks[b]].memory);
  return memory;
}

class Program {
 public:
  Program(const PlanningProblem& problem, const std::vector<std::vector<MovingChoice>>& choices, int64_t limit, Goal goal)
      : problem_(problem), choices_(choices), limit_(limit), goal_(goal) {
    double most = 1;
    int64_t saved = 0, moved = 0;
    for (const std::vector<MovingChoice>& list : choices) {
      most = std::max(most, static_cast<double>(list.size()));
      const auto range = [&](auto bytes) {
        const auto [least, largest] =
            std::minmax_element(list.begin(), list.end(), [&](const auto& a, const auto& b) { return bytes(a) < bytes(b); });
        return bytes(*largest) - bytes(*least);
      };
      saved += range([](const MovingChoice& choice) { return choice.memory.saved_bytes; });
      moved += range([](const MovingChoice& choice) { return choice.memory.moved_bytes; });
    }
    const double states = std::clamp(kPairs / (most * static_cast<double>(choices.size())), 128.0, kMostStates);
    // Saved bytes count everywhere, those on the host against its limit only.
    saved_cell_ = std::max<int64_t>(1, saved / static_cast<int64_t>(3 * std::sqrt(states)));
    moved_cell_ = std::max<int64_t>(1, std::min(moved, problem.host_bytes_limit) / static_cast<int64_t>(std::sqrt(states) / 3));
  }

  std::optional<std::vector<int32_t>> Run() {
    states_.push_back({State{}});
    for (size_t b = 0; b < choices_.size(); ++b) {
      std::vector<State> next = After(b);
      if (next.empty()) return std::nullopt;
      Thin(next);
      states_.push_back(std::move(next));
    }
    const std::vector<State>& last = states_.back();
    const State* best = nullptr;
    std::pair<double, double> least;
    for (const State& state : last) {
      State whole = state;
      whole.peak = std::max({state.peak, problem_.head_peak_bytes + state.saved, problem_.optimizer_peak_bytes});
      if (whole.peak > limit_ || (best != nullptr && whole.Cost(goal_) >= least)) continue;
      best = &state;
      least = whole.Cost(goal_);
    }
    if (best == nullptr) return std::nullopt;
    std::vector<int32_t> picks(choices_.size());
    for (size_t b = choices_.size(); b-- > 0;) {
      picks[b] = best->choice;
      best = &states_[b][best->from];
    }
    return picks;
  }

 private:
  std::vector<State> After(size_t b) const {
    const BlockInstance& block = problem_.blocks[b];
    std::vector<State> next;
    for (size_t i = 0; i < states_.back().size(); ++i) {
      const State& state = states_.back()[i];
      for (size_t c = 0; c < choices_[b].size(); ++c) {
        const MovingChoice& choice = choices_[b][c];
        State after{.saved = state.saved + choice.memory.saved_bytes,
                    .moved = state.moved + choice.memory.moved_bytes,
                    .last_moved = choice.memory.moved_bytes,
                    .seconds = state.seconds + choice.seconds,
                    .from = static_cast<int32_t>(i),
                    .choice = static_cast<int32_t>(c)};
        after.peak = std::max({state.peak, block.forward_base_bytes + after.saved + after.last_moved,
                               block.backward_base_bytes + state.saved + choice.memory.own_peak_bytes + state.last_moved});
        if (after.peak <= limit_ && after.moved <= problem_.host_bytes_limit) next.push_back(after);
      }
    }
    return next;
  }

  // Keeps of each cell the cheapest state and the one whose last block moved least.
  void Thin(std::vector<State>& states) const {
    const auto cell = [&](const State& state) {
      return std::pair((state.saved - kLowest) / saved_cell_, state.moved / moved_cell_);
    };
    std::sort(states.begin(), states.end(), [&](const State& a, const State& b) {
      return std::tuple(cell(a), a.Cost(goal_), a.last_moved, a.saved, a.moved) <
             std::tuple(cell(b), b.Cost(goal_), b.last_moved, b.saved, b.moved);
    });
    std::vector<State> kept;
    for (size_t first = 0; first < states.size();) {
      size_t end = first, least = first;
      for (; end < states.size() && cell(states[end]) == cell(states[first]); ++end) {
        if (states[end].last_moved < states[least].last_moved) least = end;
      }
      kept.push_back(states[first]);
      if (least != first) kept.push_back(states[least]);
      first = end;
    }
    states = std::move(kept);
  }

  // Saved bytes may be below 0; cells are counted from here.
  static constexpr int64_t kLowest = -(int64_t{1} << 61);

  const PlanningProblem& problem_;
  const std::vector<std::vector<MovingChoice>>& choices_;
  const int64_t limit_;
  const Goal goal_;
  int64_t saved_cell_ = 1;
  int64_t moved_cell_ = 1;
  std::vector<std::vector<State>> states_;  // by blocks so far
};

// Exchanges one block's pick for a faster one as long as the limits allow it.
void Improve(const PlanningProblem& problem, const std::vector<std::vector<MovingChoice>>& choices, int64_t limit,
             std::vector<int32_t>& picks) {
  std::vector<BlockMemory> memory = MemoryOf(choices, picks);
  int64_t moved = 0;
  for (const BlockMemory& block : memory) moved += block.moved_bytes;
  bool better = true;
  for (int pass = 0; better && pass < kMostPasses; ++pass) {
    better = false;
    for (size_t b = 0; b < picks.size(); ++b) {
      for (size_t c = 0; c < choices[b].size(); ++c) {
        const MovingChoice& choice = choices[b][c];
        if (choice.seconds >= choices[b][picks[b]].seconds) continue;
        const BlockMemory before = memory[b];
        if (moved - before.moved_bytes + choice.memory.moved_bytes > problem.host_bytes_limit) continue;
        memory[b] = choice.memory;
        if (FindStepPeak(problem, memory).bytes > limit) {
          memory[b] = before;
          continue;
        }
        moved += choice.memory.moved_bytes - before.moved_bytes;
        picks[b] = static_cast<int32_t>(c);
        better = true;
      }
    }
  }
}

}  // namespace

void KeepParetoChoices(std::vector<MovingChoice>& choices) {
  std::sort(choices.begin(), choices.end(), [](const MovingChoice& a, const MovingChoice& b) {
    return std::tuple(a.memory.saved_bytes, a.seconds, a.memory.moved_bytes, a.memory.own_peak_bytes) <
           std::tuple(b.memory.saved_bytes, b.seconds, b.memory.moved_bytes, b.memory.own_peak_bytes);
  });
  std::vector<MovingChoice> kept;
  for (const MovingChoice& choice : choices) {
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const MovingChoice& other) {
      return other.seconds <= choice.seconds && other.memory.moved_bytes <= choice.memory.moved_bytes &&
             other.memory.own_peak_bytes <= choice.memory.own_peak_bytes;
    });
    if (!beaten) kept.push_back(choice);
  }
  choices = std::move(kept);
}

std::optional<std::vector<int32_t>> PickFastest(const PlanningProblem& problem,
                                                const std::vector<std::vector<MovingChoice>>& choices, int64_t limit) {
  std::optional<std::vector<int32_t>> picks = Program(problem, choices, limit, Goal::kSeconds).Run();
  if (picks.has_value()) Improve(problem, choices, limit, *picks);
  return picks;
}

std::optional<std::vector<int32_t>> PickLeanest(const PlanningProblem& problem,
                                                const std::vector<std::vector<MovingChoice>>& choices) {
  return Program(problem, choices, std::numeric_limits<int64_t>::max(), Goal::kPeak).Run();
}

}  // namespace tidetape::planner
