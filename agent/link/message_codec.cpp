#include "agent/link/message_codec.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/io/pacing_io.h"
#include "planner/io/problem_io.h"

namespace tidetape::link {
namespace {

template <typename List, typename Field>
void Fill(const List& from, Field* to) {
  to->Add(from.begin(), from.end());
}

bool IsAction(v1::Action action) { return action == v1::ACTION_SAVE || action == v1::ACTION_REPLAY || action == v1::ACTION_MOVE; }

std::string DescribeHolder(const v1::PeakHolder& holder) {
  switch (holder.phase()) {
    case v1::PeakHolder::PHASE_FORWARD:
      return absl::StrCat("forward of ", holder.name());
    case v1::PeakHolder::PHASE_BACKWARD:
      return absl::StrCat("backward of ", holder.name());
    case v1::PeakHolder::PHASE_HEAD:
      return "head";
    case v1::PeakHolder::PHASE_OPTIMIZER:
      return "optimizer";
    default:
      return "";
  }
}

}  // namespace

v1::StepReport ReportToMessage(const StepReport& from) {
  v1::StepReport report;
  report.set_step(from.step);
  report.set_generation(from.generation);
  report.set_step_seconds(from.step_seconds);
  report.set_step_peak_bytes(from.step_peak_bytes);
  report.set_saved_bytes(from.saved_bytes);
  report.set_replay_seconds(from.replay_seconds);
  report.set_replayed_ops(from.replayed_ops);
  report.set_demoted_ops(from.demoted_ops);
  report.set_agent_seconds(from.agent_seconds);
  if (from.profile) {
    v1::MemoryProfile* profile = report.mutable_profile();
    profile->set_steady(from.profile->steady);
    profile->set_early(from.profile->early);
    profile->set_head_peak_bytes(from.profile->head_peak_bytes);
    profile->set_optimizer_peak_bytes(from.profile->optimizer_peak_bytes);
    profile->set_host_bytes_limit(from.profile->host_bytes_limit);
    profile->set_host_bytes_per_second(from.profile->host_bytes_per_second);
    for (const planner::ScheduledPart& part : from.profile->schedule) *profile->add_schedule() = planner::ToProto(part);
    *profile->mutable_headroom() = planner::ToProto(from.profile->headroom);
    for (const planner::ProfiledBlock& block : from.profile->blocks) {
      v1::ProfiledBlock* to = profile->add_blocks();
      to->set_structure_hash(block.structure_hash);
      *to->mutable_instance() = planner::ToProto(block.instance);
      Fill(block.held_inputs, to->mutable_held_inputs());
    }
  }
  for (const planner::TapeCosts& costs : from.costs) {
    v1::TapeCosts* to = report.add_costs();
    to->set_structure_hash(costs.structure_hash);
    Fill(costs.cost_seconds, to->mutable_cost_seconds());
    Fill(costs.replay_workspace_bytes, to->mutable_replay_workspace_bytes());
  }
  Fill(from.live_bytes, report.mutable_live_bytes());
  if (from.collectives) {
    v1::CollectiveReport* collectives = report.mutable_collectives();
    collectives->set_gather_seconds(from.collectives->gather_seconds);
    collectives->set_reduce_seconds(from.collectives->reduce_seconds);
    collectives->set_covered_bytes(from.collectives->covered_bytes);
    collectives->set_covered_ratio(from.collectives->covered_ratio);
    collectives->set_network_bytes(from.collectives->network_bytes);
    collectives->set_pacing_generation(from.collectives->pacing_generation);
    planner::LinksToProto(from.collectives->links, collectives);
  }
  return report;
}

absl::StatusOr<std::shared_ptr<const OwnedPlan>> PlanFromMessage(const v1::Plan& from) {
  if (from.generation() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("a plan with generation ", from.generation(), "; generations start at 1"));
  }
  tt_plan numbers = {};
  numbers.generation = from.generation();
  numbers.memory_limit_bytes = from.memory_limit_bytes();
  numbers.step_peak_bytes = from.step_peak_bytes();
  numbers.headroom_bytes = from.headroom_bytes();
  numbers.replay_seconds = from.replay_seconds();
  numbers.saved_bytes = from.saved_bytes();
  numbers.moved_bytes = from.moved_bytes();
  numbers.move_seconds = from.move_seconds();
  numbers.lower_bound_seconds = from.lower_bound_seconds();
  numbers.gap_ratio = from.gap_ratio();
  numbers.least_peak_bytes = from.least_peak_bytes();
  numbers.feasible = from.feasible() ? 1 : 0;
  if (from.has_pacing()) {
    const v1::PacingPlan& pacing = from.pacing();
    if (pacing.algorithm() != v1::PacingPlan::ALGORITHM_RECURSIVE_DOUBLING &&
        pacing.algorithm() != v1::PacingPlan::ALGORITHM_RING) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan ", from.generation(), ": pacing algorithm ", pacing.algorithm(), " is not known to this agent"));
    }
    numbers.has_pacing = 1;
    numbers.pacing.algorithm = static_cast<uint8_t>(pacing.algorithm());
    numbers.pacing.slot_reuse = pacing.slot_reuse() ? 1 : 0;
    numbers.pacing.chunk_bytes = pacing.chunk_bytes();
    numbers.pacing.puts_in_flight = pacing.puts_in_flight();
    numbers.pacing.chunk_gap_seconds = pacing.chunk_gap_seconds();
    numbers.pacing.prefetch_depth = pacing.prefetch_depth();
    numbers.pacing.staging_slots = pacing.staging_slots();
    numbers.pacing.gather_seconds = pacing.gather_seconds();
  }
  auto plan = std::make_shared<OwnedPlan>(
      numbers, PlanTexts{DescribeHolder(from.least_peak_holder()), DescribeHolder(from.peak_holder()), from.reason(), from.etag()});
  for (const v1::BlockPlan& block : from.blocks()) {
    if (!IsAction(block.default_action())) {
      return absl::InvalidArgumentError(absl::StrCat("plan ", from.generation(), ", block ", block.name(), ": default_action ",
                                                     block.default_action(), " is not known to this agent"));
    }
    tt_block_plan to = {};
    to.block = block.block();
    to.structure_hash = block.structure_hash();
    to.default_action = static_cast<uint8_t>(block.default_action());
    to.saved_bytes = block.saved_bytes();
    to.replay_seconds = block.replay_seconds();
    to.own_peak_bytes = block.own_peak_bytes();
    to.num_saved = block.saved_size();
    to.num_replayed = block.replayed_size();
    to.num_moved = block.moved_size();
    to.moved_bytes = block.moved_bytes();
    to.moved_input_bytes = block.moved_input_bytes();
    to.option = block.option();
    std::vector<tt_site_action> sites;
    sites.reserve(block.sites_size());
    for (const v1::SiteAction& site : block.sites()) {
      if (!IsAction(site.action())) {
        return absl::InvalidArgumentError(absl::StrCat("plan ", from.generation(), ", block ", block.name(), ", site ",
                                                       absl::Hex(site.site(), absl::kZeroPad16), ": action ", site.action(),
                                                       " is not known to this agent"));
      }
      sites.push_back({site.site(), static_cast<uint8_t>(site.action())});
    }
    plan->AddBlock(to, block.name(), std::move(sites));
  }
  return plan;
}

}  // namespace tidetape::link
