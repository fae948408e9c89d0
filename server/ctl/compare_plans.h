// `tidetapectl compare`: what two plans do differently, of one job or of two.
#ifndef TIDETAPE_SERVER_CTL_COMPARE_PLANS_H_
#define TIDETAPE_SERVER_CTL_COMPARE_PLANS_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/ctl/arguments.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::ctl {

// Labels of a tape's storages, by structure hash; a tape may be missing.
using LabelsByHash = std::map<uint64_t, std::vector<std::string>>;

// One block that the plans treat differently.
struct BlockDifference {
  std::string name;
  const v1::BlockPlan* before = nullptr;  // null: the plan has no such block
  const v1::BlockPlan* after = nullptr;
  // Labels of values; empty where the blocks are of different structure.
  std::vector<std::string> newly_kept;
  std::vector<std::string> no_longer_kept;
};

// Blocks by position, those alone that differ. The plans outlive the result.
std::vector<BlockDifference> ComparePlans(const v1::Plan& before, const v1::Plan& after, const LabelsByHash& labels);

// JOB or JOB@GENERATION, against another one or, without it, the plan before.
absl::Status Compare(const Arguments& arguments, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_COMPARE_PLANS_H_
