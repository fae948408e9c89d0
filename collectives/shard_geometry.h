// Where the shards of one parameter lie in it, as FSDP2 cuts them (torch 2.14.1).
//
// A parameter is seen as [outer, dim, inner], dim being the sharded dimension. torch.chunk cuts dim into pieces of
// chunk = ceil(dim / shards): rank g holds [g * chunk, min((g + 1) * chunk, dim)), which may be short or empty. For Shard(0) FSDP2
// pads each shard to `chunk` in the gathered storage, so that storage holds shards * chunk rows and shard g starts at row g *
// chunk. For other dimensions FSDP2 refuses uneven shards, and storage has no padding. In both cases shard g lies in `outer`
// pieces, and they start at the same element in the gathered storage as in an unpadded gradient.
#ifndef TIDETAPE_COLLECTIVES_SHARD_GEOMETRY_H_
#define TIDETAPE_COLLECTIVES_SHARD_GEOMETRY_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tidetape::collectives {

struct ShardGeometry {
  int64_t outer = 1;
  int64_t dim = 0;
  int64_t inner = 1;
  int64_t chunk = 0;
  int32_t shards = 1;

  static ShardGeometry Of(const std::vector<int64_t>& shape, int32_t shard_dim, int32_t shards) {
    ShardGeometry geometry;
    geometry.shards = shards;
    geometry.dim = shape[shard_dim];
    for (int32_t d = 0; d < shard_dim; ++d) geometry.outer *= shape[d];
    for (size_t d = shard_dim + 1; d < shape.size(); ++d) geometry.inner *= shape[d];
    geometry.chunk = (geometry.dim + shards - 1) / shards;
    return geometry;
  }

  int64_t elements() const { return outer * dim * inner; }
  int64_t storage_elements() const { return outer == 1 ? shards * chunk * inner : elements(); }

  // Of shard g, in steps of `inner` elements.
  int64_t rows(int32_t g) const { return std::min((g + 1) * chunk, dim) - std::min(g * chunk, dim); }
  int64_t piece_elements(int32_t g) const { return rows(g) * inner; }
  int64_t shard_elements(int32_t g) const { return outer * piece_elements(g); }
  // First element of piece `o` of shard g in the storage and in the gradient, and in the shard itself.
  int64_t storage_element(int32_t g, int64_t o) const { return (o * dim + g * chunk) * inner; }
  int64_t shard_element(int32_t g, int64_t o) const { return o * piece_elements(g); }
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_SHARD_GEOMETRY_H_
