#include "collectives/executor.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/testing/runs.h"
#include "collectives/testing/thread_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::byte kPoison{0xfb};

Parameter Make(std::string name, std::vector<int64_t> shape, DType dtype = DType::kBFloat16, int32_t shard_dim = 0) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.dtype = dtype;
  parameter.gradient_dtype = dtype;
  parameter.shard_dim = shard_dim;
  return parameter;
}

// A mesh, parameters with every peculiarity, and options, all by chance.
struct Scene {
  explicit Scene(uint64_t seed) : random(seed) {
    const int32_t per_node = 1 + random() % 4, nodes = 1 + random() % 3, replicas = random() % 3 == 0 ? 2 : 1;
    const int32_t shards = per_node * nodes;
    LayoutSpec spec;
    spec.meshes = {{"mesh", shards, replicas, per_node}};
    Parameter frozen = Make("frozen", {10}), tied = Make("weight.tied", {5 * shards - 2, 7});
    frozen.frozen = true;
    tied.shared_with = "weight";
    Unit unit{"layers.0",
              "mesh",
              {Make("weight", {5 * shards - 2, 7}), Make("few", {1 + static_cast<int64_t>(random() % shards), 3}), tied}};
    if (random() % 2) unit.parameters.push_back(Make("columns", {3, 2 * shards, 5}, DType::kBFloat16, 1));
    if (random() % 2) unit.parameters.push_back(Make("scale", {static_cast<int64_t>(random() % 30)}, DType::kFloat32));
    unit.parameters.push_back(frozen);
    if (random() % 2) unit.parameters.push_back(Make("long", {static_cast<int64_t>(shards * (500 + random() % 900)), 2}));
    spec.units = {unit};
    spec.options.staging_bytes = 4096 << random() % 3;
    spec.options.accumulator_bytes = 4096 * nodes;
    spec.options.reuse_slots = random() % 2;
    if (random() % 2) spec.options.host_ranks = per_node;
    layout = *Layout::Create(spec);
    options.chunk_bytes = 32 << random() % 6;
    options.puts_in_flight = 1 + random() % 6;
    options.staging_slots = 1 + random() % 3;
    options.rail = random() % 2 ? RailAlgorithm::kRing : RailAlgorithm::kDoubling;
    options.multicast_most_bytes = random() % 2 ? 100 : 1 << 20;
    options.divide_factor = random() % 2 ? shards * replicas : 3;
    if (random() % 4 == 0) options.gradient_dtype = DType::kFloat32;
    if (random() % 4 == 0) options.gap = absl::Microseconds(1);
    ThreadGroup::Options group_options;
    group_options.ranks = shards * replicas;
    group_options.signals = layout->signals();
    group_options.arena_bytes = layout->arena_bytes();
    group_options.shared_bytes = layout->shared_region().bytes;
    group_options.host_ranks = per_node;
    group_options.seed = seed;
    group_options.laziness = random() % 2 ? 0.02 : 0;
    group = std::make_unique<ThreadGroup>(group_options);
    groups = GroupsOf(spec.meshes[0]);
  }

  const Unit& unit() const { return layout->spec().units[0]; }
  const UnitPlace& place() const { return layout->units()[0]; }
  int32_t parameters() const { return static_cast<int32_t>(unit().parameters.size()); }
  bool owns(int32_t p) const { return place().parameters[p].storage_of == p; }
  bool reduced(int32_t p) const { return owns(p) && !unit().parameters[p].frozen; }
  DType gradient_dtype(int32_t p) const { return options.gradient_dtype.value_or(unit().parameters[p].gradient_dtype); }

  // The same work on a thread for each rank.
  void OnAllRanks(const std::function<void(int32_t, Transport&)>& work) {
    std::vector<std::thread> threads;
    threads.reserve(groups.size());
    for (int32_t rank = 0; rank < static_cast<int32_t>(groups.size()); ++rank) {
      threads.emplace_back([&, rank] { work(rank, *group->MakeTransport(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::mt19937_64 random;
  absl::StatusOr<Layout> layout = absl::UnknownError("not made");
  ScheduleOptions options;
  std::unique_ptr<ThreadGroup> group;
  std::vector<Group> groups;
};

// Copies shard g of all parameters from the whole arena `from`: rows of the sharded dimension, as torch.chunk gives them.
void FillShard(const Scene& scene, const std::vector<std::byte>& from, int32_t g, absl::Span<std::byte> arena) {
  const int32_t shards = scene.place().mesh.shards;
  for (int32_t p = 0; p < scene.parameters(); ++p) {
    if (!scene.owns(p)) continue;
    const Parameter& parameter = scene.unit().parameters[p];
    const int64_t size = DTypeBytes(parameter.dtype), rows = parameter.shape[parameter.shard_dim];
    int64_t inner = 1, outer = 1;
    for (size_t d = 0; d < parameter.shape.size(); ++d) {
      if (static_cast<int32_t>(d) < parameter.shard_dim) outer *= parameter.shape[d];
      if (static_cast<int32_t>(d) > parameter.shard_dim) inner *= parameter.shape[d];
    }
    const int64_t chunk = (rows + shards - 1) / shards, begin = std::min(g * chunk, rows), end = std::min(begin + chunk, rows);
    for (int64_t o = 0; o < outer; ++o) {
      const int64_t at = scene.place().parameters[p].offset + (o * rows + begin) * inner * size;
      std::copy_n(from.begin() + at, (end - begin) * inner * size, arena.begin() + at);
    }
  }
}

// Twice in a row with different parameters, as two units would follow each other in the slot. Slots are shared by hosts or not.
TEST(ExecutorTest, GathersEveryBitAndLeavesPaddingAlone) {
  constexpr int kRounds = 2;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scene scene(seed);
    const int32_t shards = scene.place().mesh.shards;
    // By copy and round, what every rank must hold in the end: parameters by chance on poison.
    std::vector<std::vector<std::vector<std::byte>>> expected(scene.place().mesh.replicas);
    for (auto& rounds : expected) {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<std::byte>& whole = rounds.emplace_back(scene.layout->arena_bytes(), kPoison);
        for (int32_t p = 0; p < scene.parameters(); ++p) {
          if (!scene.owns(p)) continue;
          const ParameterPlace& place = scene.place().parameters[p];
          const int64_t bytes = place.geometry.elements() * DTypeBytes(scene.unit().parameters[p].dtype);
          for (int64_t b = 0; b < bytes; ++b) whole[place.offset + b] = static_cast<std::byte>(scene.random());
        }
      }
    }
    for (int32_t rank = 0; rank < static_cast<int32_t>(scene.groups.size()); ++rank) {
      const absl::Span<std::byte> arena = scene.group->arena(rank);
      std::fill(arena.begin(), arena.end(), kPoison);
    }
    scene.OnAllRanks([&](int32_t rank, Transport& transport) {
      const auto schedule = AllGatherSchedule(*scene.layout, 0, scene.groups[rank], scene.options);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      Executor executor(transport, {absl::Seconds(60)});
      const int32_t last = static_cast<int32_t>(schedule->phases.size()) - 1;
      for (int round = 0; round < kRounds; ++round) {
        const std::vector<std::byte>& whole = expected[rank / shards][round];
        for (int32_t phase = 0; phase <= last; ++phase) {
          if (phase == last) FillShard(scene, whole, rank % shards, transport.arena());
          const absl::Status status = executor.RunPhase(*schedule, phase, {}, round);
          ASSERT_TRUE(status.ok()) << status;
        }
        ASSERT_TRUE(std::equal(whole.begin(), whole.end(), transport.arena().begin())) << "rank " << rank << ", round " << round;
      }
    });
    ASSERT_EQ(scene.group->unclaimed_signals(), 0);
  }
}

float FromBFloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// Gradients of all ranks, and what their reduction must give.
class Gradients {
 public:
  explicit Gradients(Scene& scene) : scene_(scene) {
    for (size_t rank = 0; rank < scene.groups.size(); ++rank) {
      auto& own = bytes_.emplace_back(scene.parameters());
      for (int32_t p = 0; p < scene.parameters(); ++p) {
        if (!scene.reduced(p)) continue;
        // Now and then a rank has none: it was not used there.
        if (scene.random() % 5 == 0) continue;
        const int64_t elements = scene.place().parameters[p].geometry.elements(), size = DTypeBytes(scene.gradient_dtype(p));
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < elements; ++i) {
          const float value = std::ldexp(normal(scene.random), static_cast<int>(scene.random() % 8));
          std::byte bits[4];
          std::memcpy(bits, &value, 4);
          own[p].insert(own[p].end(), size == 2 ? bits + 2 : bits, bits + 4);
        }
      }
    }
  }

  absl::Span<const std::byte> of(int32_t rank, int32_t p) const { return bytes_[rank][p]; }

  float At(int32_t rank, int32_t p, int64_t element) const {
    const std::vector<std::byte>& bytes = bytes_[rank][p];
    if (bytes.empty()) return 0;
    if (scene_.gradient_dtype(p) == DType::kFloat32) {
      float value;
      std::memcpy(&value, bytes.data() + 4 * element, 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * element, 2);
    return FromBFloat16(bits);
  }

 private:
  const Scene& scene_;
  std::vector<std::vector<std::vector<std::byte>>> bytes_;  // by rank and parameter
};

// The sum in the order that reduce_scatter_schedule.h states, one float32 rounding an addition. `part` is the replica's part.
float FixedOrderSum(const Scene& scene, const Gradients& gradients, int32_t g, int32_t part, int32_t p, int64_t element) {
  const MeshShape& mesh = scene.place().mesh;
  const int32_t nodes = mesh.shards / mesh.per_node, node = g / mesh.per_node;
  float over_copies = 0;
  for (int32_t c = 1; c <= mesh.replicas; ++c) {
    const int32_t copy = (part + c) % mesh.replicas;
    float over_nodes = 0;
    for (int32_t n = 1; n <= nodes; ++n) {
      const int32_t first = copy * mesh.shards + (node + n) % nodes * mesh.per_node;
      float in_node = gradients.At(first, p, element);
      for (int32_t local = 1; local < mesh.per_node; ++local) {
        volatile float next = in_node + gradients.At(first + local, p, element);
        in_node = next;
      }
      volatile float sum = n == 1 ? in_node : over_nodes + in_node;
      over_nodes = sum;
    }
    volatile float sum = c == 1 ? over_nodes : over_copies + over_nodes;
    over_copies = sum;
  }
  return over_copies;
}

TEST(ExecutorTest, ReducesInTheStatedOrderToTheBit) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Scene scene(seed);
    const MeshShape mesh = scene.place().mesh;
    const Gradients gradients(scene);
    const bool accumulate = scene.random() % 2;
    std::vector<std::vector<std::vector<float>>> outputs(scene.groups.size(), std::vector<std::vector<float>>(scene.parameters()));
    for (size_t rank = 0; rank < scene.groups.size(); ++rank) {
      for (int32_t p = 0; p < scene.parameters(); ++p) {
        if (scene.reduced(p))
          outputs[rank][p].assign(scene.place().parameters[p].geometry.shard_elements(rank % mesh.shards), 0.75f);
      }
    }
    scene.OnAllRanks([&](int32_t rank, Transport& transport) {
      ReduceBuffers buffers;
      for (int32_t p = 0; p < scene.parameters(); ++p) {
        buffers.gradients.push_back(gradients.of(rank, p));
        buffers.outputs.push_back({absl::MakeSpan(outputs[rank][p]), accumulate});
      }
      const auto schedule = ReduceScatterSchedule(*scene.layout, 0, scene.groups[rank], scene.options);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      Executor executor(transport, {absl::Seconds(60)});
      // Twice, so that every slot and signal is used again; the second time adds to the first where asked to.
      for (int64_t step = 0; step < 2; ++step) {
        const absl::Status status = executor.Run(*schedule, buffers, step);
        ASSERT_TRUE(status.ok()) << status;
      }
    });
    ASSERT_EQ(scene.group->unclaimed_signals(), 0);
    const float factor = static_cast<float>(1 / scene.options.divide_factor);
    // Elements of one round, from the layout's contract: as many as the region for sums holds.
    const bool one_round = mesh.shards == mesh.per_node && mesh.replicas == 1;
    const int64_t round =
        one_round ? scene.place().reduced_elements
                  : std::min(scene.place().accumulators.bytes / 4 / (mesh.shards / mesh.per_node), scene.place().reduced_elements);
    for (int32_t rank = 0; rank < static_cast<int32_t>(scene.groups.size()); ++rank) {
      const int32_t g = rank % mesh.shards;
      int64_t shard_total = 0, stream = 0;
      for (int32_t p = 0; p < scene.parameters(); ++p) shard_total += outputs[rank][p].size();
      for (int32_t p = 0; p < scene.parameters(); ++p) {
        const ShardGeometry& geometry = scene.place().parameters[p].geometry;
        for (int64_t i = 0; i < static_cast<int64_t>(outputs[rank][p].size()); ++i, ++stream) {
          const int64_t piece = geometry.piece_elements(g), element = geometry.storage_element(g, i / piece) + i % piece;
          // Which replica finishes it: parts of each round's elements.
          const int64_t begin = stream / round * round, length = std::min(round, shard_total - begin);
          int32_t part = 0;
          while (stream - begin >= length * (part + 1) / mesh.replicas) ++part;
          volatile float scaled = factor * FixedOrderSum(scene, gradients, g, part, p, element);
          volatile float expected = scaled;
          if (accumulate) {
            volatile float once = 0.75f + scaled;
            expected = once + scaled;
          }
          ASSERT_EQ(outputs[rank][p][i], expected) << "rank " << rank << ", parameter " << p << ", element " << element;
        }
      }
    }
  }
}

// The order's error is that of any float32 summation: at most (ranks - 1) roundings of the sum of magnitudes.
TEST(ExecutorTest, SumsAreAsExactAsFloat32Allows) {
  Scene scene(7);
  const Gradients gradients(scene);
  const MeshShape mesh = scene.place().mesh;
  for (int32_t p = 0; p < scene.parameters(); ++p) {
    if (!scene.reduced(p)) continue;
    for (int64_t element = 0; element < scene.place().parameters[p].geometry.elements(); ++element) {
      double exact = 0, magnitude = 0;
      for (int32_t rank = 0; rank < mesh.shards * mesh.replicas; ++rank) {
        exact += gradients.At(rank, p, element);
        magnitude += std::abs(gradients.At(rank, p, element));
      }
      const double bound = (mesh.shards * mesh.replicas - 1) * std::ldexp(1.0, -24) * magnitude * 1.01;
      ASSERT_LE(std::abs(FixedOrderSum(scene, gradients, 0, 0, p, element) - exact), bound);
    }
  }
}

struct Pair {
  Pair() {
    LayoutSpec spec;
    spec.meshes = {{"mesh", 2, 1, 2}};
    spec.units = {{"layers.7", "mesh", {Make("weight", {8, 4})}}};
    layout = *Layout::Create(spec);
    ThreadGroup::Options options;
    options.signals = layout->signals();
    options.arena_bytes = layout->arena_bytes();
    group = std::make_unique<ThreadGroup>(options);
    groups = GroupsOf(spec.meshes[0]);
  }
  absl::StatusOr<Layout> layout = absl::UnknownError("not made");
  std::unique_ptr<ThreadGroup> group;
  std::vector<Group> groups;
};

TEST(ExecutorTest, NamesPeerUnitSlotAndStepWhenADeadlinePasses) {
  Pair pair;
  pair.group->Silence(1);
  const auto transport = pair.group->MakeTransport(0);
  const auto schedule = ReduceScatterSchedule(*pair.layout, 0, pair.groups[0], {});
  ASSERT_TRUE(schedule.ok());
  std::vector<std::byte> gradient(64);
  std::vector<float> shard(16);
  const ReduceBuffers buffers{{gradient}, {{absl::MakeSpan(shard), false}}};
  const absl::Status status = Executor(*transport, {absl::Milliseconds(30)}).Run(*schedule, buffers, 41);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("reduce-scatter of 'layers.7' in slot 0, training step 41, rank 0"),
                                                   HasSubstr("from rank 1"), HasSubstr("0 of 1 have come")));
}

TEST(ExecutorTest, NamesTheSlotOfALateMessage) {
  Pair pair;
  const auto transport = pair.group->MakeTransport(0), other = pair.group->MakeTransport(1);
  const auto schedule = ReduceScatterSchedule(*pair.layout, 0, pair.groups[0], {});
  std::vector<std::byte> gradient(64);
  std::vector<float> shard(16);
  const ReduceBuffers buffers{{gradient}, {{absl::MakeSpan(shard), false}}};
  ASSERT_TRUE(other->Signal(0, pair.layout->Signal(ReduceSignal::kReady)).ok());  // rank 1 is ready, and sends nothing
  const absl::Status status = Executor(*transport, {absl::Milliseconds(30)}).Run(*schedule, buffers, 1);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("wait for 1 of signal"), HasSubstr("from rank 1, slot 0")));
}

TEST(ExecutorTest, RefusesBuffersThatAreTooSmall) {
  Pair pair;
  const auto transport = pair.group->MakeTransport(0), other = pair.group->MakeTransport(1);
  ASSERT_TRUE(other->Signal(0, pair.layout->Signal(ReduceSignal::kReady)).ok());
  const auto schedule = ReduceScatterSchedule(*pair.layout, 0, pair.groups[0], {});
  std::vector<std::byte> gradient(63);
  std::vector<float> shard(16);
  const ReduceBuffers buffers{{gradient}, {{absl::MakeSpan(shard), false}}};
  const absl::Status status = Executor(*transport, {absl::Milliseconds(30)}).Run(*schedule, buffers, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the gradient of parameter 0 has 63 bytes, the schedule needs 64"));
}

}  // namespace
}  // namespace tidetape::collectives
