#include "agent/link/step_plan_codec.h"

#include <utility>

#include "planner/job/site_plan.h"

namespace tidetape::link {

std::shared_ptr<const OwnedPlan> MakeOwnedPlan(const planner::PlanningProblem& problem,
                                               const std::vector<uint64_t>& structure_hashes, const planner::StepPlan& plan,
                                               const PlanHeading& heading) {
  tt_plan numbers = {};
  numbers.generation = heading.generation;
  numbers.memory_limit_bytes = heading.memory_limit_bytes;
  numbers.step_peak_bytes = plan.expected_peak_bytes;
  numbers.headroom_bytes = plan.step_peak_bytes - plan.expected_peak_bytes;
  numbers.replay_seconds = plan.replay_seconds;
  numbers.saved_bytes = plan.saved_bytes;
  numbers.moved_bytes = plan.moved_bytes;
  numbers.move_seconds = plan.move_seconds;
  numbers.lower_bound_seconds = plan.lower_bound_seconds;
  numbers.gap_ratio = plan.gap_ratio;
  numbers.least_peak_bytes = plan.least_peak_bytes;
  numbers.feasible = plan.feasible ? 1 : 0;
  PlanTexts texts;
  texts.least_peak_holder = planner::DescribePeakHolder(problem, plan.least_peak_holder);
  texts.peak_holder = planner::DescribePeakHolder(problem, plan.peak_holder);
  texts.reason = heading.reason;
  texts.etag = planner::PlanEtag(problem, plan, structure_hashes);
  auto owned = std::make_shared<OwnedPlan>(numbers, std::move(texts));

  const std::vector<planner::BlockSites> named = planner::NameBySites(problem, plan);
  for (size_t k = 0; k < plan.blocks.size(); ++k) {
    const planner::BlockPlan& from = plan.blocks[k];
    tt_block_plan block = {};
    block.block = static_cast<int32_t>(k);
    block.structure_hash = structure_hashes[k];
    block.default_action = static_cast<uint8_t>(named[k].default_action);
    block.saved_bytes = from.saved_bytes;
    block.replay_seconds = from.replay_seconds;
    block.own_peak_bytes = from.own_peak_bytes;
    block.num_saved = static_cast<int32_t>(from.saved.size());
    block.num_replayed = static_cast<int32_t>(from.replayed.size());
    block.num_moved = static_cast<int32_t>(from.moved.size());
    block.moved_bytes = from.moved_bytes;
    block.moved_input_bytes = from.moved_input_bytes;
    block.option = from.option;
    std::vector<tt_site_action> sites;
    sites.reserve(named[k].sites.size());
    for (const planner::SiteAction& action : named[k].sites) {
      sites.push_back({action.site, static_cast<uint8_t>(action.action)});
    }
    owned->AddBlock(block, problem.blocks[k].name, std::move(sites));
  }
  return owned;
}

}  // namespace tidetape::link
