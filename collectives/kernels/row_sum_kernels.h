// The kernels of row_sum.cu, as libtt_kernels.so exports them: plain C, so that nothing that links them needs CUDA.
#ifndef TIDETAPE_COLLECTIVES_KERNELS_ROW_SUM_KERNELS_H_
#define TIDETAPE_COLLECTIVES_KERNELS_ROW_SUM_KERNELS_H_

#include <cstdint>

#include "collectives/kernels/row_sum.h"

namespace tidetape::collectives {

// How much of the device a sum may take beside the training's own kernels.
struct RowSumLaunch {
  int32_t ctas = 0;                  // most CTAs at a time; 0: one for each piece
  int64_t elements_per_cta = 16384;  // of one piece. A CTA ends after its pieces: the fewer elements, the shorter it holds its SM.
};

}  // namespace tidetape::collectives

extern "C" {
// Enqueues the sum on `stream` (a cudaStream_t) of the current device and returns a cudaError_t; the task is copied. All memory
// must be reachable from the device, and live until the stream has passed.
int tt_row_sum(const tidetape::collectives::RowSum* task, const tidetape::collectives::RowSumLaunch* launch, void* stream);
}

#endif  // TIDETAPE_COLLECTIVES_KERNELS_ROW_SUM_KERNELS_H_
