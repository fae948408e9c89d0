// Models and options under which every schedule must pass the verifier, for its tests.
#ifndef TIDETAPE_COLLECTIVES_TESTING_SOUND_H_
#define TIDETAPE_COLLECTIVES_TESTING_SOUND_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/testing/runs.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {

// Gradients have the parameter's dtype.
inline Parameter Make(std::string name, std::vector<int64_t> shape, DType dtype = DType::kBFloat16, int32_t shard_dim = 0) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.dtype = dtype;
  parameter.gradient_dtype = dtype;
  parameter.shard_dim = shard_dim;
  return parameter;
}

// Uneven, smaller than the group, empty, strided, mixed, tied, frozen.
inline LayoutSpec Model(int32_t shards, int32_t per_node, int32_t replicas = 1) {
  LayoutSpec spec;
  spec.meshes = {{"mesh", shards, replicas, per_node}};
  Parameter tied = Make("tied", {2 * shards + 1, 6}), frozen = Make("frozen", {37});
  tied.shared_with = "weight";
  frozen.frozen = true;
  spec.units = {
      {"layers.0", "mesh", {Make("weight", {2 * shards + 1, 6}), Make("small", {3}), tied, frozen}},
      {"layers.1", "mesh", {Make("experts", {3, 2 * shards, 5}, DType::kBFloat16, 1), Make("scale", {shards}, DType::kFloat32)}},
      {"layers.2", "mesh", {Make("empty", {0, 4}), Make("bias", {shards * 3 - 1})}}};
  spec.options.staging_bytes = 16384;
  spec.options.accumulator_bytes = 4096 * shards;
  return spec;
}

// Long enough for several messages and rounds.
inline LayoutSpec LongModel(int32_t shards, int32_t per_node, int32_t replicas) {
  LayoutSpec spec;
  spec.meshes = {{"mesh", shards, replicas, per_node}};
  spec.units = {{"layers.0", "mesh", {Make("a", {shards * 700 - 3, 3}), Make("b", {shards, 61})}}};
  spec.options.staging_bytes = 4096;
  spec.options.accumulator_bytes = 4096 * (shards / per_node);
  spec.options.reuse_slots = false;
  return spec;
}

// Makes and verifies all collectives of all units.
inline void ExpectAllSound(const LayoutSpec& spec, const ScheduleOptions& options) {
  const auto layout = Layout::Create(spec);
  ASSERT_TRUE(layout.ok()) << layout.status();
  for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
    for (int32_t unit = 0; unit < static_cast<int32_t>(spec.units.size()); ++unit) {
      const auto run = MakeRun(*layout, kind, unit, options);
      ASSERT_TRUE(run.ok()) << run.status();
      const absl::Status status = VerifyCollective(*layout, *run);
      ASSERT_TRUE(status.ok()) << spec.units[unit].name << ": " << status;
    }
  }
}

// A mesh, a model and whatever a planner may set, by chance.
struct RandomCase {
  explicit RandomCase(uint32_t seed) {
    std::mt19937 random(seed);
    const int32_t per_node = 1 + random() % 4, nodes = 1 + random() % 4, replicas = 1 + random() % 3;
    options.chunk_bytes = 16 << random() % 7;
    options.puts_in_flight = 1 + random() % 5;
    options.staging_slots = 1 + random() % 3;
    options.rail = random() % 2 ? RailAlgorithm::kRing : RailAlgorithm::kDoubling;
    options.multicast_most_bytes = random() % 2 ? 40 : 1 << 20;
    if (random() % 3 == 0) options.gradient_dtype = DType::kFloat32;
    spec = random() % 3 ? Model(per_node * nodes, per_node, replicas) : LongModel(per_node * nodes, per_node, replicas);
    spec.options.reuse_slots = random() % 2;
    if (random() % 2) spec.options.host_ranks = per_node;
  }

  LayoutSpec spec;
  ScheduleOptions options;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_SOUND_H_
