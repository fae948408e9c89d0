// The embedded planner: planner="local".
//
// Plans for this one rank on a thread of its own, with the rules of the server: a first plan with the first complete steady
// profile, a new one where planner::ReplanPolicy says so. Needs neither gRPC nor protobuf.
#ifndef TIDETAPE_AGENT_LINK_LOCAL_LINK_H_
#define TIDETAPE_AGENT_LINK_LOCAL_LINK_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "agent/link/planner_link.h"
#include "planner/job/measurement.h"
#include "planner/job/replan_policy.h"

namespace tidetape::link {

class LocalLink : public PlannerLink {
 public:
  explicit LocalLink(LinkOptions options);
  ~LocalLink() override;

  bool HasTape(uint64_t structure_hash) const override;
  tt_link_status PutTape(planner::BlockTape tape) override;
  tt_link_status ReportStep(StepReport report) override;
  tt_link_status PlanActivated(int64_t generation, int64_t step) override;
  tt_link_status SetMemoryLimit(int64_t memory_limit_bytes) override;
  LinkState State() const override;
  void Close(std::chrono::duration<double> timeout) override;

 private:
  // What the planning thread has not seen yet.
  struct Inbox {
    std::vector<planner::BlockTape> tapes;
    planner::CostsByHash costs;
    std::optional<planner::MemoryProfile> profile;  // the newest steady one
    std::optional<int64_t> memory_limit_bytes;
    // Worth waking up for.
    bool urgent() const { return !tapes.empty() || profile.has_value() || memory_limit_bytes.has_value(); }
  };

  void Run();
  // How planning stands once the inbox was worked off.
  absl::Status Work(Inbox inbox);
  // Takes what came in; true where a plan may be due.
  bool Digest(Inbox inbox);
  // Plans where the policy wants it.
  absl::Status Replan();

  const LinkOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the inbox has something, or the link closes
  std::condition_variable idle_;  // the thread has nothing to do
  Inbox inbox_;
  std::set<uint64_t> known_tapes_;
  int64_t held_generation_ = 0;  // highest of the plans made and the generations activated
  int64_t reports_ = 0;
  bool busy_ = false;
  bool closing_ = false;
  std::string error_;

  // The planning thread's own.
  planner::TapesByHash tapes_;
  planner::CostsByHash costs_;
  std::optional<planner::MemoryProfile> profile_;
  int64_t memory_limit_bytes_;
  bool waits_for_tapes_ = false;
  planner::ReplanPolicy policy_;
  absl::Status planning_status_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_LOCAL_LINK_H_
