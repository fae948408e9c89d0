#include "planner/step/step_moves.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "planner/step/moving_bound.h"
#include "planner/step/moving_choice.h"

namespace tidetape::planner {
namespace {

// Choices of all blocks together, about: few blocks with few ways need every sum of bytes, many get along with a few steps.
constexpr size_t kChoices = 4096;
constexpr size_t kFewestSets = 6, kMostSets = 64;

class MovingSteps {
 public:
  MovingSteps(const PlanningProblem& problem, const std::vector<std::vector<BlockPlan>>& ways) : problem_(problem), ways_(ways) {
    size_t count = 0;
    for (const std::vector<BlockPlan>& list : ways) count += list.size();
    most_sets_ = std::clamp(kChoices / std::max<size_t>(1, count), kFewestSets, kMostSets);
    for (size_t b = 0; b < ways.size(); ++b) choices_.push_back(ChoicesOf(b));
  }

  const std::vector<std::vector<MovingChoice>>& choices() const { return choices_; }

  std::vector<BlockPlan> PlansOf(const std::optional<std::vector<int32_t>>& picks) {
    std::vector<BlockPlan> plans;
    for (size_t b = 0; picks.has_value() && b < picks->size(); ++b) {
      const MovingChoice& choice = choices_[b][(*picks)[b]];
      plans.push_back(MoveSet(ways_[b][choice.way], SetsOf(b, choice.way)[choice.set], problem_.host_bytes_per_second));
    }
    return plans;
  }

 private:
  std::vector<MovingChoice> ChoicesOf(size_t b) {
    std::vector<MovingChoice> choices;
    for (size_t w = 0; w < ways_[b].size(); ++w) {
      const std::vector<MovedSet>& sets = SetsOf(b, w);
      for (size_t s = 0; s < sets.size(); ++s) {
        if (sets[s].bytes > problem_.host_bytes_limit) continue;
        const BlockPlan& way = ways_[b][w];
        const BlockMemory memory{way.saved_bytes - sets[s].bytes, way.own_peak_bytes, sets[s].bytes};
        const double seconds = way.replay_seconds + MoveSecondsAByte(problem_) * static_cast<double>(sets[s].bytes);
        choices.push_back({memory, seconds, static_cast<int32_t>(w), static_cast<int32_t>(s)});
      }
    }
    KeepParetoChoices(choices);
    return choices;
  }

  // Blocks of one tape share their plans, and where they hold the same inputs the sets of them, too.
  const std::vector<MovedSet>& SetsOf(size_t b, size_t way) {
    const BlockInstance& block = problem_.blocks[b];
    if (!block.options.empty()) return nothing_;
    const std::vector<int32_t>& saved = ways_[b][way].saved;
    std::vector<MovedSet>& sets = sets_[{block.tape, block.held_inputs, saved}];
    if (sets.empty()) sets = MovedSets(problem_.tapes[block.tape], block.held_inputs, saved, most_sets_);
    return sets;
  }

  const PlanningProblem& problem_;
  const std::vector<std::vector<BlockPlan>>& ways_;
  const std::vector<MovedSet> nothing_{MovedSet{}};
  size_t most_sets_ = 0;
  std::map<std::tuple<int32_t, std::vector<int32_t>, std::vector<int32_t>>, std::vector<MovedSet>> sets_;
  std::vector<std::vector<MovingChoice>> choices_;
};

}  // namespace

BlockPlan MoveSet(BlockPlan kept, const MovedSet& set, double host_bytes_per_second) {
  std::vector<int32_t> stays;
  std::set_difference(kept.saved.begin(), kept.saved.end(), set.storages.begin(), set.storages.end(), std::back_inserter(stays));
  kept.saved = std::move(stays);
  kept.moved = set.storages;
  kept.saved_bytes -= set.bytes - set.input_bytes;
  kept.moved_bytes = set.bytes;
  kept.moved_input_bytes = set.input_bytes;
  kept.move_seconds = 2 / host_bytes_per_second * static_cast<double>(set.bytes);
  return kept;
}

std::vector<BlockPlan> FastestWithMoves(const PlanningProblem& problem, const std::vector<std::vector<BlockPlan>>& ways,
                                        int64_t limit) {
  MovingSteps steps(problem, ways);
  return steps.PlansOf(PickFastest(problem, steps.choices(), limit));
}

std::vector<BlockPlan> LeanestWithMoves(const PlanningProblem& problem, const std::vector<std::vector<BlockPlan>>& ways) {
  MovingSteps steps(problem, ways);
  return steps.PlansOf(PickLeanest(problem, steps.choices()));
}

}  // namespace tidetape::planner
