#include "server/messages/plan_message.h"

#include "planner/io/problem_io.h"
#include "planner/job/site_plan.h"

namespace tidetape::server {

planner::MemoryProfile ProfileFromMessage(const v1::MemoryProfile& profile) {
  planner::MemoryProfile result;
  for (const v1::ProfiledBlock& block : profile.blocks()) {
    result.blocks.push_back(
        {block.structure_hash(), planner::FromProto(block.instance()), {block.held_inputs().begin(), block.held_inputs().end()}});
  }
  result.head_peak_bytes = profile.head_peak_bytes();
  result.optimizer_peak_bytes = profile.optimizer_peak_bytes();
  result.host_bytes_limit = profile.host_bytes_limit();
  result.host_bytes_per_second = profile.host_bytes_per_second();
  for (const v1::ScheduledPart& part : profile.schedule()) result.schedule.push_back(planner::FromProto(part));
  result.headroom = planner::FromProto(profile.headroom());
  result.steady = profile.steady();
  result.early = profile.early() && !profile.steady();
  return result;
}

planner::TapeCosts CostsFromMessage(const v1::TapeCosts& costs) {
  return {costs.structure_hash(),
          {costs.cost_seconds().begin(), costs.cost_seconds().end()},
          {costs.replay_workspace_bytes().begin(), costs.replay_workspace_bytes().end()}};
}

v1::TapeCosts CostsToMessage(const planner::TapeCosts& costs) {
  v1::TapeCosts message;
  message.set_structure_hash(costs.structure_hash);
  message.mutable_cost_seconds()->Add(costs.cost_seconds.begin(), costs.cost_seconds.end());
  message.mutable_replay_workspace_bytes()->Add(costs.replay_workspace_bytes.begin(), costs.replay_workspace_bytes.end());
  return message;
}

planner::StepPlan PlanFromMessage(const v1::Plan& plan) {
  planner::StepPlan result;
  for (const v1::BlockPlan& block : plan.blocks()) {
    planner::BlockPlan& of_block = result.blocks.emplace_back();
    of_block.saved.assign(block.saved().begin(), block.saved().end());
    of_block.moved.assign(block.moved().begin(), block.moved().end());
    of_block.option = block.option();
  }
  result.expected_peak_bytes = plan.step_peak_bytes();
  result.step_peak_bytes = plan.step_peak_bytes() + plan.headroom_bytes();
  result.replay_seconds = plan.replay_seconds();
  result.moved_bytes = plan.moved_bytes();
  result.move_seconds = plan.move_seconds();
  result.feasible = plan.feasible();
  return result;
}

v1::Plan PlanToMessage(const planner::PlanningProblem& problem, const std::vector<uint64_t>& structure_hashes,
                       const planner::StepPlan& plan) {
  v1::Plan message = planner::ToProto(problem, plan);
  message.set_memory_limit_bytes(LimitToMessage(problem.memory_limit_bytes));
  message.set_etag(planner::PlanEtag(problem, plan, structure_hashes));
  // Also for blocks that brought options instead of a tape.
  for (int k = 0; k < message.blocks_size(); ++k) message.mutable_blocks(k)->set_structure_hash(structure_hashes[k]);
  return message;
}

std::vector<uint64_t> StructureHashes(const v1::Plan& plan) {
  std::vector<uint64_t> hashes;
  for (const v1::BlockPlan& block : plan.blocks()) hashes.push_back(block.structure_hash());
  return hashes;
}

int64_t LimitToMessage(int64_t planner_limit_bytes) {
  return planner_limit_bytes == planner::kUnlimitedBytes ? -1 : planner_limit_bytes;
}

}  // namespace tidetape::server
