// The verifier on every shape of 1 to 64 ranks, and on many random cases.
#include "collectives/testing/sound.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

TEST(ScheduleVerifierLongTest, AcceptsEveryShapeFrom1To64Ranks) {
  for (int32_t shards = 1; shards <= 64; ++shards) {
    for (int32_t per_node = 1; per_node <= shards; ++per_node) {
      if (shards % per_node != 0) continue;
      for (RailAlgorithm rail : {RailAlgorithm::kRing, RailAlgorithm::kDoubling}) {
        for (int32_t host_ranks : {0, per_node}) {
          SCOPED_TRACE(testing::Message() << shards << " ranks, " << per_node << " a node, shared " << (host_ranks > 0));
          ScheduleOptions options;
          options.chunk_bytes = 64;
          options.rail = rail;
          LayoutSpec spec = Model(shards, per_node);
          spec.options.staging_bytes = 65536;
          spec.options.host_ranks = host_ranks;
          ASSERT_NO_FATAL_FAILURE(ExpectAllSound(spec, options));
        }
      }
    }
  }
}

TEST(ScheduleVerifierLongTest, AcceptsWhateverAPlannerMaySet) {
  for (uint32_t seed = 1000; seed < 3000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomCase random(seed);
    ASSERT_NO_FATAL_FAILURE(ExpectAllSound(random.spec, random.options));
  }
}

}  // namespace
}  // namespace tidetape::collectives
