#include "collectives/simulator/compare_schemes.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/all_gather_schedule.h"
#include "collectives/reduce_scatter_schedule.h"
#include "collectives/simulator/baselines.h"
#include "collectives/simulator/simulate.h"

namespace tidetape::collectives {
namespace {

constexpr const char* kMesh = "fsdp";

// The unit with sizes rounded up to whole shards, so that all ranks do the same.
Unit Even(Unit unit, int32_t shards) {
  unit.mesh = kMesh;
  for (Parameter& parameter : unit.parameters) parameter.shape[0] = (parameter.shape[0] + shards - 1) / shards * shards;
  return unit;
}

int64_t Elements(const Unit& unit) {
  int64_t sum = 0;
  for (const Parameter& parameter : unit.parameters) {
    int64_t elements = 1;
    for (int64_t size : parameter.shape) elements *= size;
    sum += elements;
  }
  return sum;
}

absl::StatusOr<Layout> MakeLayout(const std::vector<Unit>& units, const ClusterShape& cluster) {
  LayoutSpec spec;
  spec.meshes = {{kMesh, cluster.gpus, 1, cluster.per_node}};
  spec.units = units;
  spec.options.accumulator_bytes = std::max(spec.options.accumulator_bytes, int64_t{8192} * cluster.gpus / cluster.per_node);
  return Layout::Create(std::move(spec));
}

Group GroupOf(int32_t rank, const ClusterShape& cluster) {
  Group group;
  group.per_node = cluster.per_node;
  group.self = rank;
  for (int32_t g = 0; g < cluster.gpus; ++g) group.shards.push_back(g);
  return group;
}

class Comparison {
 public:
  Comparison(const ModelShape& model, const ClusterShape& cluster, const Machine& machine, const ScheduleOptions& options)
      : model_(model), cluster_(cluster), machine_(machine), options_(options) {
    for (int32_t rank = 0; rank < cluster.per_node; ++rank) groups_.push_back(GroupOf(rank, cluster));
    most_frequent_ = std::max_element(model.units.begin(), model.units.end(),
                                      [](const UnitShape& a, const UnitShape& b) { return a.count < b.count; }) -
                     model.units.begin();
  }

  absl::StatusOr<std::vector<SchemeCost>> Run() {
    std::vector<SchemeCost> costs;
    for (SchemeCost& cost : costs_) {
      for (size_t u = 0; u < model_.units.size(); ++u) {
        if (absl::Status status = AddUnit(u, cost); !status.ok()) return status;
      }
      cost.network_load = cost.step_seconds() > 0 ? cost.network_load / cost.step_seconds() : 0;
      if (absl::Status status = AddMemory(cost); !status.ok()) return status;
      costs.push_back(cost);
    }
    return costs;
  }

 private:
  using MakeSchedule = std::function<absl::StatusOr<Schedule>(const Group&)>;

  // Times the schedule on the first node; adds it to the cost so many times. Gives the time at which gradients are free.
  absl::StatusOr<double> Time(const MakeSchedule& make, double times, double& seconds, SchemeCost& cost) {
    std::vector<Schedule> schedules;
    for (const Group& group : groups_) {
      auto schedule = make(group);
      if (!schedule.ok()) return schedule.status();
      schedules.push_back(*std::move(schedule));
    }
    const auto ranks = Simulate(schedules, machine_, {cluster_.per_node, true});
    if (!ranks.ok()) return ranks.status();
    double slowest = 0, free = 0, compute = 0, busy = 0;
    int64_t bytes = 0;
    for (size_t rank = 0; rank < ranks->size(); ++rank) {
      const SimulatedRank& result = (*ranks)[rank];
      slowest = std::max(slowest, result.seconds);
      const int32_t phase = GradientsFreePhase(schedules[rank]);
      free = std::max(free, phase < 0 ? 0 : result.phase_end_seconds[phase]);
      compute = std::max(compute, result.compute_seconds);
      busy = std::max(busy, result.network_busy_seconds);
      bytes = std::max(bytes, result.network_bytes);
    }
    seconds += times * slowest;
    cost.copy_seconds += times * compute;
    cost.network_load += times * busy;  // seconds, for now
    cost.network_bytes += static_cast<int64_t>(times) * bytes;
    return free;
  }

  absl::Status AddUnit(size_t u, SchemeCost& cost) {
    const Unit unit = Even(model_.units[u].unit, cluster_.gpus);
    const int64_t elements = Elements(unit), shard = elements / cluster_.gpus;
    Unit flat = unit;
    flat.parameters.resize(1);
    flat.parameters[0].shape = {elements};
    flat.parameters[0].gradient_dtype = DType::kFloat32;
    const bool stock = cost.scheme == "stock", tidetape = cost.scheme == "tidetape";
    const auto layout = MakeLayout({tidetape ? unit : flat}, cluster_);
    if (!layout.ok()) return layout.status();

    const double times = model_.units[u].count, gathers = unit.keeps_slot ? 1 : 2;
    const auto gather = Time(
        [&](const Group& group) -> absl::StatusOr<Schedule> {
          if (stock) return StockAllGather(group, shard * 2);
          auto schedule = AllGatherSchedule(*layout, 0, group, options_);
          if (!schedule.ok() || tidetape) return schedule;
          return WithGatherCopies(*std::move(schedule), shard * 2, elements * 2);
        },
        times* gathers, cost.gather_seconds, cost);
    if (!gather.ok()) return gather.status();
    const auto reduce = Time(
        [&](const Group& group) -> absl::StatusOr<Schedule> {
          if (stock) return StockReduceScatter(group, shard);
          auto schedule = ReduceScatterSchedule(*layout, 0, group, options_);
          if (!schedule.ok() || tidetape) return schedule;
          return WithReduceCopies(*std::move(schedule), elements);
        },
        times, cost.reduce_seconds, cost);
    if (!reduce.ok()) return reduce.status();
    if (u == static_cast<size_t>(most_frequent_)) {
      const double copy_in = machine_.step_seconds + static_cast<double>(elements) / machine_.add_elements_per_second;
      cost.gradients_seconds = tidetape ? *reduce : copy_in;
    }
    return absl::OkStatus();
  }

  absl::Status AddMemory(SchemeCost& cost) {
    std::vector<Unit> units;
    int64_t largest = 0;  // elements
    for (const UnitShape& shape : model_.units) {
      Unit unit = Even(shape.unit, cluster_.gpus);
      largest = std::max(largest, Elements(unit));
      for (int32_t i = 0; i < shape.count; ++i) {
        units.push_back(unit);
        units.back().name = absl::StrCat(unit.name, " ", i);
      }
    }
    const auto layout = MakeLayout(units, cluster_);
    if (!layout.ok()) return layout.status();
    int64_t gathered = 0;
    for (const Region& slot : layout->slots()) gathered += slot.bytes;
    if (cost.scheme == "tidetape") {
      cost.staging_bytes = layout->staging().bytes + layout->accumulators().bytes;
    } else {
      cost.staging_bytes = largest * 2 + largest * 4;  // flat all-gather output; float32 reduce-scatter input
    }
    cost.peak_bytes = gathered + cost.staging_bytes;
    return absl::OkStatus();
  }

  const ModelShape& model_;
  const ClusterShape& cluster_;
  const Machine& machine_;
  const ScheduleOptions& options_;
  std::vector<Group> groups_;
  int64_t most_frequent_ = 0;
  SchemeCost costs_[3] = {{.scheme = "stock"}, {.scheme = "symm-mem"}, {.scheme = "tidetape"}};
};

}  // namespace

std::vector<std::string> SchemeAssumptions() {
  return {
      "Times are of collectives alone, one after the other: nothing hides behind compute, and no other traffic shares the links.",
      "Units are gathered twice a step, in forward and backward; the output head once. Gradients are reduced once.",
      "bfloat16 parameters and gradients, float32 sums. Sizes are rounded up to whole shards. All nodes are equal.",
      "stock: as many rings over all ranks as a node has ranks, at any size; copies in and out of flat buffers; reduces float32.",
      "symm-mem: Tidetape's way over the links, but between flat buffers, with stock's copies, and sends float32 gradients.",
      "tidetape: straight between parameters and gradients; the cast of the own shard, which all three need, is not counted.",
      "Peak: two rotating slots and the output head gathered, plus what each scheme needs beside; gradients are not counted.",
  };
}

absl::StatusOr<std::vector<SchemeCost>> CompareSchemes(const ModelShape& model, const ClusterShape& cluster, const Machine& machine,
                                                       const ScheduleOptions& options) {
  if (cluster.gpus < 1 || cluster.per_node < 1 || cluster.gpus % cluster.per_node != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("per-node is ", cluster.per_node, ", must divide the number of GPUs, ", cluster.gpus));
  }
  return Comparison(model, cluster, machine, options).Run();
}

}  // namespace tidetape::collectives
