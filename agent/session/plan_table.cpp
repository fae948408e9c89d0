#include "agent/session/plan_table.h"

namespace tidetape::agent {
namespace {

std::string Text(const char* text) { return text == nullptr ? std::string() : std::string(text); }

}  // namespace

HeldPlan::HeldPlan(const tt_plan& plan)
    : generation(plan.generation),
      memory_limit_bytes(plan.memory_limit_bytes),
      step_peak_bytes(plan.step_peak_bytes),
      headroom_bytes(plan.headroom_bytes),
      replay_seconds(plan.replay_seconds),
      saved_bytes(plan.saved_bytes),
      moved_bytes(plan.moved_bytes),
      move_seconds(plan.move_seconds),
      lower_bound_seconds(plan.lower_bound_seconds),
      gap_ratio(plan.gap_ratio),
      least_peak_bytes(plan.least_peak_bytes),
      feasible(plan.feasible != 0),
      least_peak_holder(Text(plan.least_peak_holder)),
      peak_holder(Text(plan.peak_holder)),
      reason(Text(plan.reason)),
      etag(Text(plan.etag)) {
  if (plan.has_pacing != 0) pacing = plan.pacing;
  for (size_t i = 0; i < plan.num_blocks; ++i) {
    const tt_block_plan& given = plan.blocks[i];
    PlannedBlock block;
    block.name = Text(given.name);
    block.actions.save_by_default = given.default_action == TT_ACTION_SAVE;
    for (size_t s = 0; s < given.num_sites; ++s) {
      const tt_site_action& site = given.sites[s];
      (site.action == TT_ACTION_SAVE   ? block.actions.save
       : site.action == TT_ACTION_MOVE ? block.actions.move
                                       : block.actions.replay)
          .insert(site.site);
    }
    block.saved_bytes = given.saved_bytes;
    block.moved_bytes = given.moved_bytes;
    block.actions.forward_bytes = given.saved_bytes + given.moved_bytes - given.moved_input_bytes;
    block.replay_seconds = given.replay_seconds;
    block.own_peak_bytes = given.own_peak_bytes;
    block.num_saved = given.num_saved;
    block.num_replayed = given.num_replayed;
    block.num_moved = given.num_moved;
    block.option = given.option;
    by_name_.try_emplace(block.name, blocks.size());
    blocks.push_back(std::move(block));
  }
}

const PlannedBlock* HeldPlan::FindBlock(int32_t position, const std::string& name) const {
  if (position >= 0 && static_cast<size_t>(position) < blocks.size() && blocks[position].name == name) return &blocks[position];
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &blocks[found->second];
}

const BlockActions* HeldPlan::Find(int32_t position, const std::string& name) const {
  const PlannedBlock* block = FindBlock(position, name);
  return block == nullptr ? nullptr : &block->actions;
}

}  // namespace tidetape::agent
