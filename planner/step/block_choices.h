// The ways in which each block of a problem can run, out of which step plans are put together.
#ifndef TIDETAPE_PLANNER_STEP_BLOCK_CHOICES_H_
#define TIDETAPE_PLANNER_STEP_BLOCK_CHOICES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "planner/step/step_bound.h"
#include "planner/step/step_choice.h"
#include "planner/tape/tape_plans.h"

namespace tidetape::planner {

// What the plan keeps, replays and needs, in this block; and likewise with one of the block's options.
BlockPlan ToBlockPlan(const TapePlan& plan, const BlockTape& tape, const BlockInstance& instance);
BlockPlan ToBlockPlan(const BlockInstance& instance, int32_t option);

// For a block with a tape: vertices of its hull, "keep all" and lean plans; for one with options: these. A choice's id is that of
// an option or a vertex, or lies below it; from kFirstFreeId on ids are the caller's. Keeps a reference to the problem, which must
// be valid. Not safe for use from several threads at once.
class BlockChoices {
 public:
  static constexpr int32_t kFirstFreeId = 1 << 24;

  // Computes the hull of each tape that a block uses. InvalidArgument for a tape that has no plan.
  static absl::StatusOr<std::unique_ptr<BlockChoices>> Create(const PlanningProblem& problem);
  BlockChoices(const BlockChoices&) = delete;
  BlockChoices& operator=(const BlockChoices&) = delete;

  bool has_tape(size_t block) const { return problem_.blocks[block].options.empty(); }
  // Of a block with a tape.
  const TapePlans& tape_plans(size_t block) const { return *tapes_[problem_.blocks[block].tape]; }
  // By tape; null where no block uses it.
  const std::vector<std::unique_ptr<TapePlans>>& tapes() const { return tapes_; }
  // By block: the hull of all its plans, and the least that each of them needs.
  const std::vector<const std::vector<HullPoint>*>& hulls() const { return hulls_; }
  const std::vector<BlockLeast>& least() const { return least_; }

  // Spread over each block's hull, "keep all", and what AddLean found.
  Choices& spread() { return spread_; }
  // The same, and for blocks with tapes the vertices around so many saved bytes, by block.
  Choices Near(const std::vector<int64_t>& saved_bytes);
  // Adds the vertices that cost at most so much above the bound's prices, or some of them where they are many: no other one is part
  // of a plan that exceeds the bound by less.
  void AddWithin(const StepBound& bound, double seconds, Choices& choices);
  // Looks for plans with a low own peak for a block with a tape, and offers what it finds to all blocks with that tape. The search
  // takes the ops that it visits off `visits`.
  void AddLean(size_t block, int64_t& visits);

  void FindOwnPeak(size_t block, Choice& choice);
  // Ops that are visited to find out the own peak of one choice of each tape.
  int64_t VisitsAChoice() const;

  BlockPlan PlanOf(size_t block, int32_t id);
  // The choice that replays nothing that can be kept: the fastest one.
  int32_t KeepAllId(size_t block) const;

 private:
  explicit BlockChoices(const PlanningProblem& problem) : problem_(problem) {}

  void PrepareBlock(size_t block);
  // The plan at a vertex of the block's hull, by what the cut says of it and what bounds all own peaks.
  Choice VertexChoice(size_t block, int32_t vertex);
  Choice KnownChoice(size_t block, const TapePlan& plan, int32_t id) const;
  void AddVertices(size_t block, const std::vector<int32_t>& vertices, std::vector<Choice>& choices);
  std::vector<Choice> SpreadChoices(size_t block);
  void AddLeanVertices(size_t block);

  const PlanningProblem& problem_;
  std::vector<std::unique_ptr<TapePlans>> tapes_;
  std::vector<std::vector<HullPoint>> option_hulls_;  // by block; empty where it has a tape
  std::vector<const std::vector<HullPoint>*> hulls_;
  std::vector<BlockLeast> least_;
  std::vector<OwnPeakRange> own_peaks_;  // by block with a tape
  Choices spread_;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_STEP_BLOCK_CHOICES_H_
