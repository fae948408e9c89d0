// A tt_plan together with the memory that it points at.
#ifndef TIDETAPE_AGENT_LINK_OWNED_PLAN_H_
#define TIDETAPE_AGENT_LINK_OWNED_PLAN_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "agent/link/tt_link.h"

namespace tidetape::link {

// What a plan says in words.
struct PlanTexts {
  std::string least_peak_holder;
  std::string peak_holder;
  std::string reason;
  std::string etag;
};

// Immutable once shared.
class OwnedPlan {
 public:
  // Takes the numbers of `numbers`; its pointers are not looked at.
  OwnedPlan(const tt_plan& numbers, PlanTexts texts);
  OwnedPlan(const OwnedPlan&) = delete;
  OwnedPlan& operator=(const OwnedPlan&) = delete;

  // Appends a block; the pointers of `numbers` are not looked at.
  void AddBlock(const tt_block_plan& numbers, std::string name, std::vector<tt_site_action> sites);

  const tt_plan& plan() const { return plan_; }

 private:
  tt_plan plan_;
  PlanTexts texts_;
  std::deque<std::string> names_;  // deques: what blocks_ points at stays where it is
  std::deque<std::vector<tt_site_action>> sites_;
  std::vector<tt_block_plan> blocks_;
};

// A plan for the C interface that keeps `plan` alive until TakeBack.
const tt_plan* HandOut(std::shared_ptr<const OwnedPlan> plan);
void TakeBack(const tt_plan* plan);

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_OWNED_PLAN_H_
