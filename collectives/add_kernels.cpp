#include "collectives/add_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

// One copy of each loop for each vector length, chosen when the program is loaded. The compiler vectorises the loops by itself; see
// the target's options in BUILD.bazel.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TT_VECTOR_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define TT_VECTOR_CLONES
#endif

namespace tidetape::collectives {
namespace {

float LoadFloat(const std::byte* at) {
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// bfloat16 is the upper half of float32.
float LoadBFloat16(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void StoreFloat(std::byte* at, float value) { std::memcpy(at, &value, sizeof value); }

TT_VECTOR_CLONES
void StoreBFloat16s(std::byte* __restrict destination, const std::byte* __restrict source, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) StoreFloat(destination + 4 * i, LoadBFloat16(source + 2 * i));
}

TT_VECTOR_CLONES
void AddBFloat16s(std::byte* __restrict destination, const std::byte* __restrict source, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    StoreFloat(destination + 4 * i, LoadFloat(destination + 4 * i) + LoadBFloat16(source + 2 * i));
  }
}

TT_VECTOR_CLONES
void AddFloat32s(std::byte* __restrict destination, const std::byte* __restrict source, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    StoreFloat(destination + 4 * i, LoadFloat(destination + 4 * i) + LoadFloat(source + 4 * i));
  }
}

TT_VECTOR_CLONES
void ScaleFloat32s(std::byte* destination, const std::byte* source, float factor, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) StoreFloat(destination + 4 * i, factor * LoadFloat(source + 4 * i));
}

TT_VECTOR_CLONES
void AddScaledFloat32s(std::byte* __restrict destination, const std::byte* __restrict source, float factor, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    StoreFloat(destination + 4 * i, LoadFloat(destination + 4 * i) + factor * LoadFloat(source + 4 * i));
  }
}

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kBlock = 2048;  // elements whose sums stay in the first-level cache

TT_VECTOR_CLONES
void ScaleBFloat16Pairs(std::byte* __restrict destination, const std::byte* __restrict first, const std::byte* __restrict second,
                        float factor, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    StoreFloat(destination + 4 * i, factor * (LoadBFloat16(first + 2 * i) + LoadBFloat16(second + 2 * i)));
  }
}

TT_VECTOR_CLONES
void AddScaledBFloat16Pairs(std::byte* __restrict destination, const std::byte* __restrict first,
                            const std::byte* __restrict second, float factor, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    const float sum = LoadBFloat16(first + 2 * i) + LoadBFloat16(second + 2 * i);
    StoreFloat(destination + 4 * i, LoadFloat(destination + 4 * i) + factor * sum);
  }
}

TT_VECTOR_CLONES
void AddBFloat16Pairs(std::byte* __restrict destination, const std::byte* __restrict first, const std::byte* __restrict second,
                      int64_t elements) {
  for (int64_t i = 0; i < elements; ++i)
    StoreFloat(destination + 4 * i, LoadBFloat16(first + 2 * i) + LoadBFloat16(second + 2 * i));
}

// Elements [first, first + count) of the sources.
void SumBlock(std::byte* sums, absl::Span<const std::byte* const> sources, DType dtype, int64_t first, int64_t count) {
  size_t s = 1;
  if (dtype == DType::kBFloat16 && sources.size() > 1) {
    AddBFloat16Pairs(sums, sources[0] + 2 * first, sources[1] + 2 * first, count);
    s = 2;
  } else {
    StoreFloats(sums, sources[0] + first * DTypeBytes(dtype), dtype, count);
  }
  for (; s < sources.size(); ++s) AddFloats(sums, sources[s] + first * DTypeBytes(dtype), dtype, count);
}

}  // namespace

void StoreFloats(std::byte* destination, const std::byte* source, DType dtype, int64_t elements) {
  if (dtype == DType::kBFloat16) {
    StoreBFloat16s(destination, source, elements);
  } else if (elements > 0) {
    std::memcpy(destination, source, elements * sizeof(float));
  }
}

void AddFloats(std::byte* destination, const std::byte* source, DType dtype, int64_t elements) {
  if (dtype == DType::kBFloat16) {
    AddBFloat16s(destination, source, elements);
  } else {
    AddFloat32s(destination, source, elements);
  }
}

void SumFloats(std::byte* destination, absl::Span<const std::byte* const> sources, DType dtype, int64_t elements) {
  for (int64_t done = 0; done < elements; done += kBlock) {
    SumBlock(destination + done * kFloatBytes, sources, dtype, done, std::min(kBlock, elements - done));
  }
}

void ScaleSum(std::byte* destination, absl::Span<const std::byte* const> sources, DType dtype, float factor, bool accumulate,
              int64_t elements) {
  if (sources.size() == 2 && dtype == DType::kBFloat16) {
    // Two ranks, in one pass.
    return accumulate ? AddScaledBFloat16Pairs(destination, sources[0], sources[1], factor, elements)
                      : ScaleBFloat16Pairs(destination, sources[0], sources[1], factor, elements);
  }
  std::byte sums[kBlock * kFloatBytes];
  for (int64_t done = 0; done < elements; done += kBlock) {
    const int64_t count = std::min(kBlock, elements - done);
    SumBlock(sums, sources, dtype, done, count);
    ScaleFloats(destination + done * kFloatBytes, sums, factor, accumulate, count);
  }
}

void ScaleFloats(std::byte* destination, const std::byte* source, float factor, bool accumulate, int64_t elements) {
  if (accumulate) {
    AddScaledFloat32s(destination, source, factor, elements);
  } else {
    ScaleFloat32s(destination, source, factor, elements);
  }
}

}  // namespace tidetape::collectives
