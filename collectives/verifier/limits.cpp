#include "collectives/verifier/limits.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

constexpr int32_t kMostInFlight = 256;  // NCCL's limit for one peer

template <typename... Parts>
absl::Status Broken(const Schedule& schedule, int32_t step, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts..., ": rank ", schedule.rank, ", ", schedule.collective, " of '",
                                                    schedule.unit, "', ", StepText(schedule, step)));
}

std::vector<int32_t> Receivers(const Schedule& schedule, const Step& step) {
  if (step.kind == StepKind::kPut) return {step.peer};
  if (step.kind == StepKind::kMulticast) return schedule.peer_sets[step.peer];
  return {};
}

// Bytes of shard g: gathered, or its elements with a gradient times `bytes`, 0 for the gradient's own size.
int64_t ShardBytes(const Layout& layout, int32_t unit, int32_t g, bool gathered, int64_t bytes) {
  int64_t sum = 0;
  const UnitPlace& place = layout.units()[unit];
  for (size_t p = 0; p < place.parameters.size(); ++p) {
    const Parameter& parameter = layout.spec().units[unit].parameters[p];
    if (place.parameters[p].storage_of != static_cast<int32_t>(p) || (!gathered && parameter.frozen)) continue;
    const int64_t size = gathered ? DTypeBytes(parameter.dtype) : bytes > 0 ? bytes : DTypeBytes(parameter.gradient_dtype);
    sum += place.parameters[p].geometry.shard_elements(g) * size;
  }
  return sum;
}

struct Traffic {
  int64_t local = 0;
  int64_t network = 0;
};

Traffic LeastTraffic(const Layout& layout, const CollectiveRun& run) {
  Traffic least;
  const MeshShape& mesh = layout.units()[run.unit].mesh;
  const int64_t nodes = mesh.shards / mesh.per_node;
  const int64_t bytes = run.gradient_dtype.has_value() ? DTypeBytes(*run.gradient_dtype) : 0;
  for (int32_t g = 0; g < mesh.shards; ++g) {
    if (run.kind == CollectiveKind::kAllGather) {
      const int64_t shard = ShardBytes(layout, run.unit, g, true, 0);
      least.network += (nodes - 1) * shard;
      least.local += nodes * (mesh.per_node - 1) * shard;
    } else {
      least.local += nodes * (mesh.per_node - 1) * ShardBytes(layout, run.unit, g, false, bytes);
      const int64_t sums = ShardBytes(layout, run.unit, g, false, 4);
      least.network += (nodes - 1) * sums;
    }
  }
  least.local *= mesh.replicas;
  least.network *= mesh.replicas;
  if (run.kind == CollectiveKind::kReduceScatter) {
    for (int32_t g = 0; g < mesh.shards; ++g) least.network += 2 * (mesh.replicas - 1) * ShardBytes(layout, run.unit, g, false, 4);
  }
  return least;
}

}  // namespace

absl::Status CheckSteps(const Layout& layout, const Schedule& schedule, int32_t ranks) {
  if (schedule.puts_in_flight < 1 || schedule.puts_in_flight > kMostInFlight) {
    return absl::FailedPreconditionError(absl::StrCat("in flight: rank ", schedule.rank, " allows ", schedule.puts_in_flight,
                                                      " puts to a peer, NCCL allows ", kMostInFlight));
  }
  std::map<int32_t, int32_t> in_flight;
  for (int32_t i = 0; i < static_cast<int32_t>(schedule.steps.size()); ++i) {
    const Step& step = schedule.steps[i];
    if (step.kind == StepKind::kFlush) in_flight.clear();
    const bool multicast = step.kind == StepKind::kMulticast, communicates = step.signal >= 0 || step.peer >= 0;
    if (multicast && (step.peer < 0 || step.peer >= static_cast<int32_t>(schedule.peer_sets.size()))) {
      return Broken(schedule, i, "no such set of peers");
    }
    if (step.kind == StepKind::kSum && (step.sources < 0 || step.sources >= static_cast<int32_t>(schedule.source_sets.size()) ||
                                        schedule.source_sets[step.sources].empty())) {
      return Broken(schedule, i, "no such set of sources");
    }
    if (!communicates) continue;
    if (step.signal < 0 || step.signal >= layout.signals()) return Broken(schedule, i, "no such signal");
    if (!multicast && (step.peer < 0 || step.peer >= ranks || step.peer == schedule.rank))
      return Broken(schedule, i, "no such peer");
    if (step.kind == StepKind::kWait && step.count < 1) return Broken(schedule, i, "waits for nothing");
    std::set<int32_t> seen;
    for (int32_t peer : Receivers(schedule, step)) {
      if (peer < 0 || peer >= ranks || peer == schedule.rank || !seen.insert(peer).second)
        return Broken(schedule, i, "no such peer");
      if (++in_flight[peer] > schedule.puts_in_flight) {
        return Broken(schedule, i, "in flight: more than ", schedule.puts_in_flight, " puts to rank ", peer,
                      " since the last flush");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const Layout& layout, const CollectiveRun& run) {
  std::map<int32_t, std::pair<int32_t, int32_t>> node_of;  // by rank: the copy's first rank, and the node within it
  for (const Group& group : run.groups) node_of[group.rank()] = {group.shards[0], group.node()};
  Traffic sent;
  for (const Schedule& schedule : run.schedules) {
    for (const Step& step : schedule.steps) {
      for (int32_t peer : Receivers(schedule, step)) {
        (node_of[peer] == node_of[schedule.rank] ? sent.local : sent.network) += step.bytes;
      }
    }
  }
  const Traffic least = LeastTraffic(layout, run);
  if (sent.local > least.local || sent.network > least.network) {
    return absl::FailedPreconditionError(absl::StrCat(
        "too many bytes: ", run.schedules[0].collective, " of '", run.schedules[0].unit, "' moves ", sent.local,
        " bytes within nodes and ", sent.network, " between them; ", least.local, " and ", least.network, " are enough"));
  }
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
