// What a layout is made from: the units of an FSDP2 model, as plain structs. The same on all ranks.
#ifndef TIDETAPE_COLLECTIVES_LAYOUT_SPEC_H_
#define TIDETAPE_COLLECTIVES_LAYOUT_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/dtype.h"

namespace tidetape::collectives {

// The ranks that shard a unit among them, and how many copies of them there are (HSDP). Which ranks these are differs from rank to
// rank and is said in a Group.
struct MeshShape {
  std::string name;
  int32_t shards = 1;    // ranks that share one copy of the parameters
  int32_t replicas = 1;  // copies whose gradients are summed
  int32_t per_node = 1;  // consecutive shards that share a host; divides `shards`
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;               // of the whole parameter, at least one dimension
  DType dtype = DType::kBFloat16;           // as gathered: FSDP2's param_dtype, or the parameter's own
  DType gradient_dtype = DType::kBFloat16;  // as autograd leaves it
  int32_t shard_dim = 0;                    // of the Shard(dim) placement
  bool frozen = false;                      // no gradient
  bool has_extension = false;               // fsdp_pre_all_gather / fsdp_post_all_gather
  bool strided_gradient = false;            // its gradient is not contiguous
  // Name of an earlier parameter of the unit with the same storage (tied weights). FSDP2 gives a parameter that several units use
  // to the first of them, so there is no sharing across units here.
  std::string shared_with;
};

// What one call of fully_shard manages, and one collective moves.
struct Unit {
  std::string name;
  std::string mesh;
  std::vector<Parameter> parameters;
  bool keeps_slot = false;  // stays unsharded between forward and backward: has a slot of its own
};

struct LayoutOptions {
  int32_t rotating_slots = 2;  // that units without a slot of their own share in turn: prefetch depth + 1
  // Ranks of a host that share gathered parameters: where all of them shard one copy of a unit (its mesh has so many ranks a node),
  // they hold the same bytes, and its slot may be the same memory for all. 0: every rank has its own. Transport ranks of a host
  // follow each other.
  int32_t host_ranks = 0;
  // For what is received but not yet added, on one rank, however many ranks there are. Cut into slots by the schedules.
  int64_t staging_bytes = int64_t{8} << 20;
  // Staging and sums lie in the slot that resharding the unit vacated, where they fit; of a slot that a host shares each rank has a
  // part for its staging. Otherwise they have regions of their own.
  bool reuse_slots = true;
  // A reduction may find its slot taken: there are regions beside the slots for it, and sums always lie there.
  bool spare_staging = false;
  // The most bytes of that region; units that need more are reduced in several rounds.
  int64_t accumulator_bytes = int64_t{64} << 20;
  // A shard that is scattered over its parameter in pieces smaller than this is not worth placing directly.
  int64_t least_piece_bytes = 2048;
};

struct LayoutSpec {
  std::vector<MeshShape> meshes;
  std::vector<Unit> units;  // in order of the forward pass
  LayoutOptions options;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_LAYOUT_SPEC_H_
