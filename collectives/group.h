// The ranks of one mesh that one rank works with.
#ifndef TIDETAPE_COLLECTIVES_GROUP_H_
#define TIDETAPE_COLLECTIVES_GROUP_H_

#include <cstdint>
#include <vector>

namespace tidetape::collectives {

// Ranks are the transport's. Position g of `shards` holds shard g; positions of one node follow each other, `per_node` of them, so
// that position g is local rank g % per_node of node g / per_node. A *rail* is one local rank of all nodes.
struct Group {
  std::vector<int32_t> shards;
  int32_t per_node = 1;  // divides the number of shards
  int32_t self = 0;      // position of the own rank in `shards`
  // Ranks that hold the same shard in the copies of an HSDP mesh, the own one among them. Empty or one rank where there is one
  // copy.
  std::vector<int32_t> replicas;
  int32_t replica = 0;  // position of the own rank in `replicas`

  int32_t rank() const { return shards[self]; }
  int32_t nodes() const { return static_cast<int32_t>(shards.size()) / per_node; }
  int32_t node() const { return self / per_node; }
  int32_t local() const { return self % per_node; }
  int32_t position(int32_t node, int32_t local) const { return node * per_node + local; }
  int32_t rank_at(int32_t node, int32_t local) const { return shards[position(node, local)]; }
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_GROUP_H_
