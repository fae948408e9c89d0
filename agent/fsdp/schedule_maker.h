// Makes the schedules that a data plane runs. In debug mode it makes those of all ranks of the mesh, proves them, and hands out the
// own rank's: what runs is the object that was proved. Whether the other ranks run theirs is for the caller to compare, by hash.
#ifndef TIDETAPE_AGENT_FSDP_SCHEDULE_MAKER_H_
#define TIDETAPE_AGENT_FSDP_SCHEDULE_MAKER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/group.h"
#include "collectives/layout.h"
#include "collectives/schedule.h"
#include "collectives/schedule_options.h"
#include "collectives/verifier/schedule_verifier.h"

namespace tidetape::agent {

class ScheduleMaker {
 public:
  // By rank of the transport.
  using Hashes = std::map<int32_t, uint64_t>;

  // By unit: `own` has the own rank's group, `everybody` those of all ranks of its mesh, the own one among them. An empty
  // `everybody`: nothing is proved. The layout must outlive the maker.
  ScheduleMaker(const collectives::Layout& layout, std::vector<collectives::Group> own,
                std::vector<std::vector<collectives::Group>> everybody)
      : layout_(layout), own_(std::move(own)), everybody_(std::move(everybody)) {}

  bool proves() const { return !everybody_.empty(); }
  const collectives::Group& group(int32_t unit) const { return own_[unit]; }

  // The own rank's schedule. FailedPrecondition, with the verifier's words, where the ranks' schedules are not sound together.
  // `hashes`, where given, gets those of all ranks, if they were proved.
  absl::StatusOr<collectives::Schedule> Make(collectives::CollectiveKind kind, int32_t unit,
                                             const collectives::ScheduleOptions& options, Hashes* hashes = nullptr) const;

 private:
  const collectives::Layout& layout_;
  const std::vector<collectives::Group> own_;
  const std::vector<std::vector<collectives::Group>> everybody_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_SCHEDULE_MAKER_H_
