// The kernels around the templates of row_sum.h: one for each dtype and finish.
#include <cuda_runtime_api.h>

#include "collectives/kernels/row_sum_kernels.h"

namespace tidetape::collectives {
namespace {

constexpr int kThreads = 256;

// Each CTA takes every gridDim.x-th piece, so that neighbours read neighbouring memory, and ends.
template <typename Element, Finish kFinish>
__global__ void __launch_bounds__(kThreads) RowSumKernel(const __grid_constant__ RowSum task, int64_t piece) {
  for (int64_t first = blockIdx.x * piece; first < task.elements; first += gridDim.x * piece) {
    row_sum::SumShare<Element, kFinish>(task, first, min(first + piece, task.elements), threadIdx.x, kThreads);
  }
}

template <typename Element, Finish kFinish>
cudaError_t Launch(const RowSum& task, int64_t piece, unsigned ctas, cudaStream_t stream) {
  RowSumKernel<Element, kFinish><<<ctas, kThreads, 0, stream>>>(task, piece);
  return cudaGetLastError();
}

template <typename Element>
cudaError_t Launch(const RowSum& task, int64_t piece, unsigned ctas, cudaStream_t stream) {
  switch (task.finish) {
    case Finish::kStore:
      return Launch<Element, Finish::kStore>(task, piece, ctas, stream);
    case Finish::kAdd:
      return Launch<Element, Finish::kAdd>(task, piece, ctas, stream);
    case Finish::kScale:
      return Launch<Element, Finish::kScale>(task, piece, ctas, stream);
    case Finish::kScaleAdd:
      return Launch<Element, Finish::kScaleAdd>(task, piece, ctas, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace tidetape::collectives

extern "C" int tt_row_sum(const tidetape::collectives::RowSum* task, const tidetape::collectives::RowSumLaunch* launch,
                          void* stream) {
  using namespace tidetape::collectives;
  if (task->rows < 1 || task->rows > kMaxRows || task->elements < 0 || launch->ctas < 0 || launch->elements_per_cta < 1) {
    return cudaErrorInvalidValue;
  }
  if (task->elements == 0) return cudaSuccess;
  const int64_t pieces = (task->elements - 1) / launch->elements_per_cta + 1;
  const int64_t most = launch->ctas > 0 ? launch->ctas : INT32_MAX;
  const unsigned ctas = static_cast<unsigned>(pieces < most ? pieces : most);
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  return task->dtype == RowDType::kBFloat16 ? Launch<row_sum::BFloat16>(*task, launch->elements_per_cta, ctas, on)
                                            : Launch<row_sum::Float32>(*task, launch->elements_per_cta, ctas, on);
}
