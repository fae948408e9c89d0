#include "collectives/layout.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "collectives/coverage.h"
#include "collectives/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Parameter Make(std::string name, std::vector<int64_t> shape, DType dtype = DType::kBFloat16, int32_t shard_dim = 0) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  parameter.dtype = dtype;
  parameter.shard_dim = shard_dim;
  return parameter;
}

LayoutSpec OneUnit(int32_t shards, std::vector<Parameter> parameters) {
  LayoutSpec spec;
  spec.meshes = {{"fsdp", shards, 1, 1}};
  spec.units = {{"layers.0", "fsdp", std::move(parameters)}};
  return spec;
}

Layout Create(LayoutSpec spec) {
  auto layout = Layout::Create(std::move(spec));
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

// What torch.chunk gives rank g of `size` rows: it fills chunks of ceil(size / shards) one after the other.
std::vector<int64_t> TorchChunk(int64_t size, int32_t shards) {
  std::vector<int64_t> rows;
  const int64_t chunk = (size + shards - 1) / shards;
  for (int32_t g = 0; g < shards; ++g) {
    rows.push_back(std::min(chunk, size));
    size -= rows.back();
  }
  return rows;
}

// Element by element: who owns element e of the parameter, and where it is in the owner's shard.
TEST(ShardGeometryTest, PlacesEveryElementWhereTorchChunkHasIt) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{7}, {1, 3}, {5, 4}, {8, 2, 3}, {0, 4}, {3, 0}, {16, 1}}) {
    for (int32_t shards : {1, 2, 3, 5, 8, 16}) {
      SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << " over " << shards);
      const ShardGeometry geometry = ShardGeometry::Of(shape, 0, shards);
      const std::vector<int64_t> rows = TorchChunk(shape[0], shards);
      int64_t element = 0, inner = 1;
      for (size_t d = 1; d < shape.size(); ++d) inner *= shape[d];
      for (int32_t g = 0; g < shards; ++g) {
        ASSERT_EQ(geometry.rows(g), rows[g]);
        // FSDP2 views the gathered buffer from its start, so a shard's padded place must be its place in the parameter.
        if (rows[g] > 0) {
          ASSERT_EQ(geometry.storage_element(g, 0), element);
        }
        ASSERT_EQ(geometry.shard_elements(g), rows[g] * inner);
        element += rows[g] * inner;
      }
      ASSERT_EQ(geometry.storage_elements(), rows[0] * inner * shards);
    }
  }
}

TEST(ShardGeometryTest, PlacesStridedShardsElementByElement) {
  const std::vector<int64_t> shape = {3, 8, 5};
  const ShardGeometry geometry = ShardGeometry::Of(shape, 1, 4);
  std::vector<int32_t> owner(3 * 8 * 5, -1);
  for (int32_t g = 0; g < 4; ++g) {
    for (int64_t o = 0; o < geometry.outer; ++o) {
      for (int64_t i = 0; i < geometry.piece_elements(g); ++i) {
        const int64_t element = geometry.storage_element(g, o) + i;
        ASSERT_EQ(owner[element], -1);
        owner[element] = g;
        // Local shard [3, 2, 5] in row-major order.
        const int64_t a = element / 40, b = element / 5 % 8, c = element % 5;
        ASSERT_EQ(geometry.shard_element(g, o) + i, (a * 2 + b % 2) * 5 + c);
      }
    }
  }
  for (int64_t e = 0; e < 120; ++e) ASSERT_EQ(owner[e], e / 5 % 8 / 2);
  EXPECT_EQ(geometry.storage_elements(), 120);
}

TEST(LayoutTest, RegionsAreAlignedAndNeverOverlap) {
  for (int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    LayoutSpec spec;
    const int32_t per_node = 1 << random() % 3, nodes = 1 + random() % 4;
    spec.meshes = {{"fsdp", per_node * nodes, 1, per_node}, {"experts", 2, 2, 1}};
    spec.options.rotating_slots = 1 + random() % 3;
    spec.options.staging_bytes = 4096 << random() % 4;
    spec.options.accumulator_bytes = 32768;
    spec.options.reuse_slots = random() % 2;
    if (random() % 2) spec.options.host_ranks = per_node;
    const int units = 1 + random() % 5;
    for (int u = 0; u < units; ++u) {
      Unit unit{"unit." + std::to_string(u), random() % 3 ? "fsdp" : "experts", {}, random() % 4 == 0};
      for (int p = random() % 5; p > 0; --p) {
        unit.parameters.push_back(Make("p" + std::to_string(p),
                                       {static_cast<int64_t>(random() % 40), static_cast<int64_t>(random() % 9)},
                                       random() % 2 ? DType::kBFloat16 : DType::kFloat32));
      }
      spec.units.push_back(unit);
    }
    const Layout layout = Create(spec);
    EXPECT_EQ(Create(spec).hash(), layout.hash());
    std::vector<Region> regions = layout.slots();
    regions.push_back(layout.staging());
    regions.push_back(layout.accumulators());
    int64_t end = 0;
    for (const Region& region : regions) {
      ASSERT_EQ(region.offset % kRegionAlignment, 0);
      ASSERT_EQ(region.offset, end);
      end = region.offset + region.bytes;
    }
    ASSERT_EQ(end, layout.arena_bytes());
    for (int u = 0; u < units; ++u) {
      const UnitPlace& place = layout.units()[u];
      const Region& slot = layout.slots()[place.slot];
      // Parameters and padding cover the slot without gap or overlap.
      std::vector<Region> all = layout.Padding(u);
      for (const ParameterPlace& parameter : place.parameters) {
        ASSERT_EQ(parameter.offset % kParameterAlignment, 0);
        const int64_t size = DTypeBytes(spec.units[u].parameters[&parameter - place.parameters.data()].dtype);
        if (parameter.geometry.elements() > 0) all.push_back({"", parameter.offset, parameter.geometry.elements() * size});
      }
      std::sort(all.begin(), all.end(), [](const Region& a, const Region& b) { return a.offset < b.offset; });
      int64_t at = slot.offset;
      for (const Region& region : all) {
        ASSERT_EQ(region.offset, at) << region.name;
        at += region.bytes;
      }
      ASSERT_EQ(at, slot.offset + slot.bytes);
      // Staging and sums are apart.
      const Region &staging = place.staging, &sums = place.accumulators;
      if (place.reduced_elements == 0) continue;
      ASSERT_GE(staging.bytes, spec.options.staging_bytes);
      ASSERT_TRUE(staging.offset + staging.bytes <= sums.offset || sums.offset + sums.bytes <= staging.offset);
    }
  }
}

TEST(LayoutTest, NeighboursInTheForwardPassShareNoSlot) {
  LayoutSpec spec = OneUnit(4, {Make("w", {8, 8})});
  for (int u = 1; u < 7; ++u) spec.units.push_back({"layers." + std::to_string(u), "fsdp", {Make("w", {8, 8})}, u == 3});
  spec.options.rotating_slots = 3;
  const Layout layout = Create(spec);
  std::vector<int32_t> slots;
  for (const UnitPlace& unit : layout.units()) slots.push_back(unit.slot);
  EXPECT_THAT(slots, ElementsAre(0, 1, 2, 3, 0, 1, 2));
}

// Units whose ranks on a host hold the same bytes come first, in slots of their own. Sums never go there; for staging each rank has
// its part.
TEST(LayoutTest, SharesSlotsOnlyWhereAHostHoldsTheSame) {
  LayoutSpec spec = OneUnit(8, {Make("w", {1024, 64})});
  spec.meshes[0].per_node = 4;
  spec.meshes.push_back({"experts", 2, 4, 2});
  spec.units.insert(spec.units.begin(), {"experts", "experts", {Make("w", {1024, 64})}});
  spec.options.host_ranks = 4;
  spec.options.staging_bytes = 4096;
  const Layout layout = Create(spec);
  EXPECT_FALSE(layout.shared(layout.units()[0].slot));
  EXPECT_TRUE(layout.shared(layout.units()[1].slot));
  EXPECT_EQ(layout.shared_region().bytes, 1024 * 64 * 2);
  EXPECT_GE(layout.units()[1].accumulators.offset, 2 * layout.shared_region().bytes);
  EXPECT_EQ(layout.units()[1].staging.offset, 0);
  EXPECT_EQ(layout.units()[1].staging.bytes, 1024 * 64 * 2 / 4);
  EXPECT_EQ(layout.units()[1].staging_stride, layout.units()[1].staging.bytes);
  spec.options.staging_bytes = 1024 * 64 * 2;
  const Layout beside = Create(spec);
  EXPECT_EQ(beside.units()[1].staging.offset, beside.staging().offset);
  EXPECT_EQ(beside.units()[1].staging_stride, 0);
}

TEST(LayoutTest, KeepsStagingAndSumsBesideSlotsThatMayBeTaken) {
  LayoutSpec spec = OneUnit(8, {Make("w", {1024, 64})});
  spec.meshes[0].per_node = 4;
  spec.options.staging_bytes = 8192;
  spec.options.spare_staging = true;
  const Layout layout = Create(spec);
  EXPECT_EQ(layout.units()[0].staging.bytes, 1024 * 64 * 2);
  EXPECT_EQ(layout.staging().bytes, 8192);
  EXPECT_EQ(layout.accumulators().bytes, 2 * 128 * 64 * 4);
  EXPECT_EQ(layout.units()[0].accumulators.offset, layout.accumulators().offset);
}

TEST(LayoutTest, GroupsDtypesAndSharesStorage) {
  Parameter tied = Make("tied", {6, 2});
  tied.shared_with = "a";
  const Layout layout = Create(OneUnit(4, {Make("a", {6, 2}), Make("f", {3}, DType::kFloat32), Make("b", {5}), tied}));
  const auto& places = layout.units()[0].parameters;
  EXPECT_EQ(places[0].offset, 0);
  EXPECT_EQ(places[0].bytes, 4 * 2 * 2 * 2);  // four shards of two rows, padded from six rows
  EXPECT_EQ(places[2].offset, 64);            // the other bfloat16 one comes next
  EXPECT_EQ(places[1].offset, 128);
  EXPECT_EQ(places[3].offset, 0);
  EXPECT_EQ(places[3].storage_of, 0);
  EXPECT_EQ(layout.units()[0].reduced_elements, 2 * 2 + 1 + 2);  // rank 0 has the largest shard
}

// The sums of a node pair fit into the slot that held the parameters: 4 bytes a shard element and node, 2 bytes a gathered element.
TEST(LayoutTest, ReusesSlotsWhereSumsFit) {
  LayoutSpec spec = OneUnit(8, {Make("w", {1024, 64})});
  spec.meshes[0].per_node = 4;
  spec.options.staging_bytes = 8192;
  const Layout reusing = Create(spec);
  EXPECT_EQ(reusing.arena_bytes(), 1024 * 64 * 2);
  EXPECT_EQ(reusing.units()[0].accumulators.bytes, 2 * 128 * 64 * 4);
  spec.options.reuse_slots = false;
  const Layout apart = Create(spec);
  EXPECT_EQ(apart.arena_bytes(), 1024 * 64 * 2 + 2 * 128 * 64 * 4 + 8192);
}

TEST(LayoutTest, StagingDoesNotGrowWithRanks) {
  std::vector<int64_t> staging;
  for (int32_t shards : {2, 4, 8, 16, 64}) {
    LayoutSpec spec = OneUnit(shards, {Make("w", {shards * 256, 64})});
    spec.meshes[0].per_node = shards;
    spec.options.reuse_slots = false;
    const Layout layout = Create(spec);
    staging.push_back(layout.staging().bytes + layout.accumulators().bytes);
  }
  EXPECT_THAT(staging, ::testing::Each(staging[0]));
}

TEST(LayoutTest, RefusesWhatFsdpRefuses) {
  const auto message = [](LayoutSpec spec) { return std::string(Layout::Create(std::move(spec)).status().message()); };
  EXPECT_THAT(message(OneUnit(2, {Make("scale", {})})),
              AllOf(HasSubstr("'layers.0'"), HasSubstr("'scale'"), HasSubstr("no dimensions")));
  EXPECT_THAT(message(OneUnit(3, {Make("w", {4, 4}, DType::kBFloat16, 1)})),
              HasSubstr("uneven sharding on dim 1: size 4 over 3 ranks"));
  EXPECT_THAT(message(OneUnit(2, {Make("w", {4}), Make("w", {4})})), HasSubstr("appears twice"));
  EXPECT_THAT(message(OneUnit(2, {Make("w", {int64_t{1} << 40, int64_t{1} << 30})})), HasSubstr("too large"));
  EXPECT_THAT(message(OneUnit(2, {Make("a\tb", {4})})), HasSubstr("control characters"));
  LayoutSpec spec = OneUnit(6, {Make("w", {4})});
  spec.meshes[0].per_node = 4;
  EXPECT_THAT(message(spec), HasSubstr("must divide its 6 shards"));
  spec.units[0].mesh = "other";
  spec.meshes[0].per_node = 3;
  EXPECT_THAT(message(spec), HasSubstr("'other'"));
}

// Each change of the spec that moves or reinterprets bytes must be seen and named.
TEST(CompareLayoutsTest, NamesTheFirstDifference) {
  LayoutSpec spec = OneUnit(4, {Make("a", {6, 2}), Make("b", {4, 4})});
  spec.units.push_back({"head", "fsdp", {Make("w", {8})}});
  const Layout own = Create(spec);
  EXPECT_TRUE(CompareLayouts(own.description(), Create(spec).description(), 0, 1).ok());
  const auto difference = [&](auto change) {
    LayoutSpec other = spec;
    change(other);
    const Layout changed = Create(other);
    EXPECT_NE(changed.hash(), own.hash());
    const absl::Status status = CompareLayouts(own.description(), changed.description(), 0, 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(difference([](LayoutSpec& s) {
                s.units[0].parameters[1].shape = {4, 5};
              }),
              HasSubstr("unit 0, parameter 1, shape ('layers.0' 'b'): '[4, 4]' on rank 0, '[4, 5]' on rank 3"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.units[1].parameters[0].dtype = DType::kFloat32; }),
              HasSubstr("dtype ('head' 'w'): 'bfloat16' on rank 0, 'float32'"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.units[0].parameters[0].frozen = true; }), HasSubstr("frozen ('layers.0' 'a')"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.units[0].parameters[1].name = "c"; }), HasSubstr("name ('layers.0' 'b'): 'b'"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.meshes[0].shards = 5; }), HasSubstr("mesh 0, shards ('fsdp'): '4'"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.units.pop_back(); }),
              HasSubstr("rank 0 has unit 1, name 'head' where rank 3 has place of unit 0"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.units[0].parameters.pop_back(); }),
              HasSubstr("parameter 1, name 'b' where rank 3 has"));
  EXPECT_THAT(difference([](LayoutSpec& s) { s.options.reuse_slots = false; }), HasSubstr("reuse_slots"));
}

// The hash is part of what ranks of different builds compare: it must not change by accident. FNV-1a of "a" is published.
TEST(StableHashTest, IsFnv1a) {
  StableHash hash;
  hash.Add("a");
  EXPECT_EQ(HashText(hash.value()), "af63dc4c8601ec8c");
}

TEST(CoverageTest, CountsBytesAndGivesReasons) {
  Parameter half = Make("half", {100}, DType::kFloat16);
  half.gradient_dtype = DType::kFloat16;
  LayoutSpec spec = OneUnit(4, {Make("a", {100}), half});                                      // 400 bytes, none covered
  spec.units.push_back({"experts", "fsdp", {Make("w1", {8, 64, 256}, DType::kBFloat16, 1)}});  // pieces of 16 * 256 * 2 bytes
  spec.units.push_back({"columns", "fsdp", {Make("w", {64, 64}, DType::kBFloat16, 1)}});       // pieces of 32 bytes
  half.frozen = true;
  spec.units.push_back({"frozen", "fsdp", {half}});
  const Coverage coverage = CoverageOf(Create(spec));
  EXPECT_EQ(coverage.total_bytes, 400 + 8 * 64 * 256 * 2 + 64 * 64 * 2 + 200);
  EXPECT_EQ(coverage.covered_bytes, 8 * 64 * 256 * 2 + 200);
  std::vector<std::string> reasons;
  for (const UncoveredParameter& parameter : coverage.uncovered) reasons.push_back(parameter.reason);
  EXPECT_THAT(reasons,
              ElementsAre(HasSubstr("float16"), HasSubstr("shares its unit with 'half'"), HasSubstr("pieces of 32 bytes")));
}

}  // namespace
}  // namespace tidetape::collectives
