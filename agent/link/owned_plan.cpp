#include "agent/link/owned_plan.h"

#include <utility>

namespace tidetape::link {
namespace {

struct HandedOutPlan : tt_plan {
  explicit HandedOutPlan(std::shared_ptr<const OwnedPlan> plan) : tt_plan(plan->plan()), owner(std::move(plan)) {}
  std::shared_ptr<const OwnedPlan> owner;
};

}  // namespace

OwnedPlan::OwnedPlan(const tt_plan& numbers, PlanTexts texts) : plan_(numbers), texts_(std::move(texts)) {
  plan_.blocks = nullptr;
  plan_.num_blocks = 0;
  plan_.least_peak_holder = texts_.least_peak_holder.c_str();
  plan_.peak_holder = texts_.peak_holder.c_str();
  plan_.reason = texts_.reason.c_str();
  plan_.etag = texts_.etag.c_str();
}

void OwnedPlan::AddBlock(const tt_block_plan& numbers, std::string name, std::vector<tt_site_action> sites) {
  tt_block_plan& block = blocks_.emplace_back(numbers);
  block.name = names_.emplace_back(std::move(name)).c_str();
  const std::vector<tt_site_action>& kept = sites_.emplace_back(std::move(sites));
  block.sites = kept.data();
  block.num_sites = kept.size();
  plan_.blocks = blocks_.data();
  plan_.num_blocks = blocks_.size();
}

const tt_plan* HandOut(std::shared_ptr<const OwnedPlan> plan) { return new HandedOutPlan(std::move(plan)); }

void TakeBack(const tt_plan* plan) { delete static_cast<const HandedOutPlan*>(plan); }

}  // namespace tidetape::link
