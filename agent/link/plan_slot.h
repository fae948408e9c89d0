// The newest candidate plan, handed from the link's thread to the training's.
#ifndef TIDETAPE_AGENT_LINK_PLAN_SLOT_H_
#define TIDETAPE_AGENT_LINK_PLAN_SLOT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "agent/link/owned_plan.h"
#include "agent/link/tt_link.h"

namespace tidetape::link {

// Thread-safe.
class PlanSlot {
 public:
  // Replaces the plan in the slot. Generations only grow: the caller has checked.
  void Put(std::shared_ptr<const OwnedPlan> plan) {
    const std::lock_guard<std::mutex> lock(mutex_);
    plan_ = std::move(plan);
    generation_.store(plan_->plan().generation, std::memory_order_release);
    count_.fetch_add(1, std::memory_order_relaxed);
  }

  // The plan where its generation is above the given one, or null; one atomic load where it is not.
  const tt_plan* Take(int64_t above_generation) const {
    if (generation() <= above_generation) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    return HandOut(plan_);
  }

  // The plan in the slot; null before the first.
  std::shared_ptr<const OwnedPlan> Peek() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return plan_;
  }

  // Generation of the plan in the slot; 0 before the first.
  int64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Plans ever put.
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const OwnedPlan> plan_;
  std::atomic<int64_t> generation_{0};
  std::atomic<int64_t> count_{0};
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_PLAN_SLOT_H_
