// The arithmetic of a reduce-scatter: bfloat16 or float32 gradients into float32 sums.
//
// Every element is converted exactly and added with one float32 rounding (no fused multiply-add), so that the result does not
// depend on the machine's vector length. Pointers may have any alignment. Source and destination must not overlap, unless they are
// the same in ScaleFloats. Safe for use from several threads on different memory.
#ifndef TIDETAPE_COLLECTIVES_ADD_KERNELS_H_
#define TIDETAPE_COLLECTIVES_ADD_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "collectives/dtype.h"

namespace tidetape::collectives {

// destination[i] = source[i] for `elements` of dtype bfloat16 or float32; the destination is float32.
void StoreFloats(std::byte* destination, const std::byte* source, DType dtype, int64_t elements);

// destination[i] += source[i]
void AddFloats(std::byte* destination, const std::byte* source, DType dtype, int64_t elements);

// destination[i] = ((sources[0][i] + sources[1][i]) + ...), one rounding an addition. Writes each element to memory once.
void SumFloats(std::byte* destination, absl::Span<const std::byte* const> sources, DType dtype, int64_t elements);

// destination[i] = factor * that sum, or destination[i] += factor * that sum.
void ScaleSum(std::byte* destination, absl::Span<const std::byte* const> sources, DType dtype, float factor, bool accumulate,
              int64_t elements);

// destination[i] = factor * source[i], or destination[i] += factor * source[i] (two roundings); float32.
void ScaleFloats(std::byte* destination, const std::byte* source, float factor, bool accumulate, int64_t elements);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_ADD_KERNELS_H_
