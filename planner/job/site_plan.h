// A plan in words that survive from step to step: an action for each site, a default for the rest.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_PLANNER_JOB_SITE_PLAN_H_
#define TIDETAPE_PLANNER_JOB_SITE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/model/plan.h"
#include "planner/model/problem.h"

namespace tidetape::planner {

// Numbered as tidetape.v1.Action and tt_action.
enum class Action { kSave = 1, kReplay = 2, kMove = 3 };

struct SiteAction {
  uint64_t site = 0;
  Action action = Action::kReplay;
  bool operator==(const SiteAction&) const = default;
};

// The plan of one block instance by site.
struct BlockSites {
  Action default_action = Action::kReplay;
  std::vector<SiteAction> sites;  // ascending; only those that differ from the default
};

// One entry a block. Under a limit the default is to replay, so that a value nobody planned for costs no memory; where everything
// is kept (kUnlimitedBytes) the default is to save. A block that brought options has
// no sites, a storage with site 0 has no name.
std::vector<BlockSites> NameBySites(const PlanningProblem& problem, const StepPlan& plan);

// 16 hex digits that are equal where the plans are: limit, structures (one hash a block), actions, prediction.
std::string PlanEtag(const PlanningProblem& problem, const StepPlan& plan, const std::vector<uint64_t>& structure_hashes);

// As in "backward of model.layers.7", "head" or "optimizer".
std::string DescribePeakHolder(const PlanningProblem& problem, const PeakHolder& holder);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_JOB_SITE_PLAN_H_
