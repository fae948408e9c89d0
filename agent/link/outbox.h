// What the training process wants the server to know. It outlives every stream.
#ifndef TIDETAPE_AGENT_LINK_OUTBOX_H_
#define TIDETAPE_AGENT_LINK_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "agent/link/planner_link.h"
#include "agent/link/report_queue.h"
#include "agent/link/tape_cache.h"
#include "planner/job/measurement.h"

namespace tidetape::link {

// The plan that the ranks switched to.
struct Activation {
  int64_t generation = 0;
  int64_t step = 0;
  bool operator==(const Activation&) const = default;
};

// Thread-safe. The training's thread puts things in, the link's thread takes them out.
class Outbox {
 public:
  Outbox(size_t report_capacity, int64_t memory_limit_bytes) : reports_(report_capacity), memory_limit_bytes_(memory_limit_bytes) {}

  TapeCache& tapes() { return tapes_; }
  const TapeCache& tapes() const { return tapes_; }

  // False where the oldest waiting report was dropped for this one.
  bool PushReport(StepReport report);
  void SetActivation(const Activation& activation);
  void SetMemoryLimit(int64_t memory_limit_bytes);

  Activation activation() const;
  int64_t memory_limit_bytes() const;

  // See ReportQueue.
  std::shared_ptr<const StepReport> NextReport(int64_t sequence);
  void Acknowledge(int64_t sequence);
  void RequeueReports();
  void DiscardSentReports();
  bool HasReports() const;
  int64_t reports_sent() const;
  int64_t reports_dropped() const;

  // The newest report with a profile, with the newest costs of every tape, for a server that has forgotten them; null before one.
  std::shared_ptr<const StepReport> Recap() const;

  // Forgets the queued reports: nobody will send them.
  void Clear();

 private:
  TapeCache tapes_;

  mutable std::mutex mutex_;
  ReportQueue reports_;
  std::shared_ptr<const StepReport> newest_profile_;
  planner::CostsByHash newest_costs_;
  Activation activation_;
  int64_t memory_limit_bytes_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_OUTBOX_H_
