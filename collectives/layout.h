// One arena a rank, laid out alike on all ranks: where every gathered parameter, staging slot and sum lies.
//
//   arena    [ slots that hosts share | other slots | staging | accumulators ]         regions start at multiples of 4096
//   slot     [ gathered storage of parameter 0 | gap | parameter 1 | ... | tail ]      parameters start at multiples of 64
//   storage  [ shard 0 | shard 1 | ... ] each padded to the size of shard 0            (Shard(0); see shard_geometry.h)
//
// A slot holds one unit at a time. Units that stay unsharded have their own; the others take the rotating slots in turn, so that
// units that follow each other never share one and the next can be gathered while this one computes. Parameters of a unit are
// grouped by dtype, in the order in which dtypes first appear.
//
// Reduce-scatter needs two more places. *Staging* holds gradient rows that peers have sent and that are not yet added: its size is
// an option and does not depend on the number of ranks. *Accumulators* hold, for each node of the mesh, the float32 sums of the
// rows that go there; a mesh of one node and one copy needs none. With reuse_slots both lie in the slot of the unit itself, which
// resharding has vacated by then, if they fit.
//
// Slots whose bytes are the same on all ranks of a host may be one memory for all of them (LayoutOptions::host_ranks). Such a slot
// may be written again only after all ranks of the host have finished with it. Reused, it is cut into one part a rank for staging,
// as large as a node's rows of one rank; sums, twice that size, never go there.
//
// Offsets depend on the spec alone. Ranks compare hash() at the start, and description() where hashes differ.
#ifndef TIDETAPE_COLLECTIVES_LAYOUT_H_
#define TIDETAPE_COLLECTIVES_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/layout_spec.h"
#include "collectives/shard_geometry.h"

namespace tidetape::collectives {

inline constexpr int64_t kRegionAlignment = 4096;
inline constexpr int64_t kParameterAlignment = 64;

// A range of the arena, in bytes. The name is for people, as in "padding of 'layers.0' parameter 'weight'".
struct Region {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct ParameterPlace {
  int64_t offset = 0;  // in the arena
  int64_t bytes = 0;   // of the gathered storage, padded shards included
  ShardGeometry geometry;
  int32_t storage_of = 0;  // parameter of the unit whose storage this is: itself, unless shared
};

struct UnitPlace {
  MeshShape mesh;
  int32_t slot = 0;
  int64_t bytes = 0;  // of the slot that the unit uses
  std::vector<ParameterPlace> parameters;
  int64_t reduced_elements = 0;  // of the largest shard: elements with a gradient, shared ones once
  Region staging;                // of local rank 0; empty where nothing is reduced
  int64_t staging_stride = 0;    // from one local rank's staging to the next one's; 0 where each has its own memory
  Region accumulators;           // one block of float32 a node; not used within one node and one copy
};

// Signal indices of the collectives of a layout. Each index has one use, so that a proof need only assume order within an index.
enum class ReduceSignal : int32_t { kReady, kRows, kRowsFree, kRail, kRailFree, kReplica, kReplicaFree, kReplicaGather, kCount };

// Immutable.
class Layout {
 public:
  // InvalidArgument with the unit, the parameter and the field. What FSDP2 refuses is refused here in its words: parameters without
  // dimensions, uneven shards on another dimension than 0.
  static absl::StatusOr<Layout> Create(LayoutSpec spec);

  const LayoutSpec& spec() const { return spec_; }
  const std::vector<UnitPlace>& units() const { return units_; }
  const std::vector<Region>& slots() const { return slots_; }
  // The part of the arena that a host's ranks share: the first slots. Empty where nothing is shared.
  Region shared_region() const;
  bool shared(int32_t slot) const { return slot < shared_slots_; }
  // The regions beside the slots; empty where every unit uses its slot, and may rely on it.
  const Region& staging() const { return staging_; }
  const Region& accumulators() const { return accumulators_; }
  int64_t arena_bytes() const { return arena_bytes_; }

  // Bytes of the unit's slot that no collective may read while the unit is gathered, for tests that fill them with poison.
  std::vector<Region> Padding(int32_t unit) const;

  // How many signal indices a transport must have, and which ones a slot's all-gather and all reduce-scatters use.
  int32_t signals() const { return 2 * static_cast<int32_t>(slots_.size()) + static_cast<int32_t>(ReduceSignal::kCount); }
  int32_t GatherSignal(int32_t slot) const { return 2 * slot; }
  int32_t ReadySignal(int32_t slot) const { return 2 * slot + 1; }
  int32_t Signal(ReduceSignal signal) const { return 2 * static_cast<int32_t>(slots_.size()) + static_cast<int32_t>(signal); }

  // One line a field, "what<TAB>value", in an order that puts the cause of a difference first.
  std::string description() const;
  uint64_t hash() const;

 private:
  Layout() = default;
  void PlaceUnits();
  void PlaceSlots(bool shared);
  void PlaceReduction();

  LayoutSpec spec_;
  std::vector<UnitPlace> units_;
  std::vector<Region> slots_;
  int32_t shared_slots_ = 0;  // the first of slots_
  Region staging_, accumulators_;
  int64_t arena_bytes_ = 0;
};

// OK where both descriptions are equal. Otherwise FailedPrecondition that names the first unit, parameter and field that differs,
// and both values.
absl::Status CompareLayouts(const std::string& own, const std::string& other, int32_t own_rank, int32_t other_rank);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_LAYOUT_H_
