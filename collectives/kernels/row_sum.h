// The arithmetic of a reduce-scatter on a GPU: rows of bfloat16 or float32 are added into float32 in the order in which they are
// given. The same templates run on the device, in the kernels of row_sum.cu, and on the host, where tests compare them with a
// reference.
//
// Every element is converted exactly, and every addition and multiplication rounds once: results equal those of
// collectives/add_kernels.h to the bit, whatever the number of threads. Where all rows and the destination reach a multiple of 16
// bytes at the same element, all but the ends go by 16-byte loads and stores; otherwise element by element, and byte by byte where
// a row is not even aligned to its elements.
#ifndef TIDETAPE_COLLECTIVES_KERNELS_ROW_SUM_H_
#define TIDETAPE_COLLECTIVES_KERNELS_ROW_SUM_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define TT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TT_HOST_DEVICE inline
#endif

namespace tidetape::collectives {

// Ranks of the largest NVLink domain.
inline constexpr int kMaxRows = 72;

enum class RowDType : int32_t { kBFloat16 = 0, kFloat32 = 1 };

// What becomes of a sum s in destination d.
enum class Finish : int32_t {
  kStore = 0,     // d = s
  kAdd = 1,       // d = d + s
  kScale = 2,     // d = factor * s
  kScaleAdd = 3,  // d = d + factor * s, two roundings
};

// One sum, as kernels take it. Sources and destination must not overlap, unless they start at the same float32.
struct RowSum {
  const unsigned char* sources[kMaxRows] = {};
  int32_t rows = 0;  // 1 to kMaxRows
  RowDType dtype = RowDType::kBFloat16;
  Finish finish = Finish::kStore;
  float factor = 1;
  unsigned char* destination = nullptr;
  int64_t elements = 0;
};

namespace row_sum {

inline constexpr int kVectorBytes = 16;
inline constexpr int kFloats = kVectorBytes / sizeof(float);

struct alignas(16) Vector {
  uint32_t words[4];
};

// Rounded once each: the compiler may not fuse them.
TT_HOST_DEVICE float Add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
TT_HOST_DEVICE float Multiply(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TT_HOST_DEVICE float FromBits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}
TT_HOST_DEVICE uint32_t ToBits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

TT_HOST_DEVICE bool Aligned(const void* at, size_t bytes) { return reinterpret_cast<uintptr_t>(at) % bytes == 0; }

// Rows are read once: they should not push the training's data out of the cache. Said in CUDA's own words, since the compiler makes
// four loads of a copied struct. The host stops at what would be a fault on a GPU.
TT_HOST_DEVICE Vector LoadVector(const unsigned char* at) {
#if defined(__CUDA_ARCH__)
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(at));
  return {{words.x, words.y, words.z, words.w}};
#else
  if (!Aligned(at, kVectorBytes)) __builtin_trap();
  return *reinterpret_cast<const Vector*>(at);
#endif
}
TT_HOST_DEVICE void StoreVector(unsigned char* at, const Vector& vector) {
#if !defined(__CUDA_ARCH__)
  if (!Aligned(at, kVectorBytes)) __builtin_trap();
#endif
  *reinterpret_cast<Vector*>(at) = vector;
}

// Little-endian bits at any address.
template <typename Bits>
TT_HOST_DEVICE Bits LoadBits(const unsigned char* at) {
  if (Aligned(at, sizeof(Bits))) return *reinterpret_cast<const Bits*>(at);
  Bits bits = 0;
  for (size_t i = 0; i < sizeof(Bits); ++i) bits = static_cast<Bits>(bits | static_cast<Bits>(at[i]) << (8 * i));
  return bits;
}
TT_HOST_DEVICE void StoreFloat(unsigned char* at, float value) {
  const uint32_t bits = ToBits(value);
  if (Aligned(at, sizeof(bits))) {
    *reinterpret_cast<uint32_t*>(at) = bits;
    return;
  }
  for (size_t i = 0; i < sizeof(bits); ++i) at[i] = static_cast<unsigned char>(bits >> (8 * i));
}

// How elements lie in a row, and a vector's worth of them as float32.
struct BFloat16 {
  static constexpr int kBytes = 2;
  static constexpr int kPerVector = kVectorBytes / kBytes;
  TT_HOST_DEVICE static float Load(const unsigned char* at) {
    return FromBits(static_cast<uint32_t>(LoadBits<uint16_t>(at)) << 16);
  }
  TT_HOST_DEVICE static void Unpack(const Vector& vector, float* values) {
    for (int w = 0; w < 4; ++w) {
      values[2 * w] = FromBits(vector.words[w] << 16);
      values[2 * w + 1] = FromBits(vector.words[w] & 0xffff0000u);
    }
  }
};
struct Float32 {
  static constexpr int kBytes = 4;
  static constexpr int kPerVector = kVectorBytes / kBytes;
  TT_HOST_DEVICE static float Load(const unsigned char* at) { return FromBits(LoadBits<uint32_t>(at)); }
  TT_HOST_DEVICE static void Unpack(const Vector& vector, float* values) {
    for (int w = 0; w < 4; ++w) values[w] = FromBits(vector.words[w]);
  }
};

template <Finish kFinish>
TT_HOST_DEVICE float Finished(float old, float sum, float factor) {
  if constexpr (kFinish == Finish::kStore) return sum;
  if constexpr (kFinish == Finish::kAdd) return Add(old, sum);
  if constexpr (kFinish == Finish::kScale) return Multiply(factor, sum);
  return Add(old, Multiply(factor, sum));
}

template <Finish kFinish>
inline constexpr bool kReadsDestination = kFinish == Finish::kAdd || kFinish == Finish::kScaleAdd;

template <typename Element, Finish kFinish>
TT_HOST_DEVICE void SumElement(const RowSum& task, int64_t i) {
  float sum = Element::Load(task.sources[0] + i * Element::kBytes);
  for (int row = 1; row < task.rows; ++row) sum = Add(sum, Element::Load(task.sources[row] + i * Element::kBytes));
  unsigned char* const at = task.destination + i * static_cast<int64_t>(sizeof(float));
  float old = 0;
  if constexpr (kReadsDestination<kFinish>) old = Float32::Load(at);
  StoreFloat(at, Finished<kFinish>(old, sum, task.factor));
}

// Elements [i, i + Element::kPerVector), all at multiples of 16 bytes.
template <typename Element, Finish kFinish>
TT_HOST_DEVICE void SumVector(const RowSum& task, int64_t i) {
  constexpr int kElements = Element::kPerVector;
  float sums[kElements], values[kElements];
  Element::Unpack(LoadVector(task.sources[0] + i * Element::kBytes), sums);
  for (int row = 1; row < task.rows; ++row) {
    Element::Unpack(LoadVector(task.sources[row] + i * Element::kBytes), values);
    for (int e = 0; e < kElements; ++e) sums[e] = Add(sums[e], values[e]);
  }
  for (int v = 0; v < kElements / kFloats; ++v) {
    unsigned char* const at = task.destination + (i + v * kFloats) * static_cast<int64_t>(sizeof(float));
    float old[kFloats] = {};
    if constexpr (kReadsDestination<kFinish>) Float32::Unpack(LoadVector(at), old);
    Vector out;
    for (int w = 0; w < kFloats; ++w) out.words[w] = ToBits(Finished<kFinish>(old[w], sums[v * kFloats + w], task.factor));
    StoreVector(at, out);
  }
}

// The first element of [first, end) at which every row and the destination are at a multiple of 16 bytes; `end` where there is
// none.
template <typename Element>
TT_HOST_DEVICE int64_t FirstVector(const RowSum& task, int64_t first, int64_t end) {
  for (int64_t i = first; i < end && i < first + Element::kPerVector; ++i) {
    bool aligned = Aligned(task.destination + i * static_cast<int64_t>(sizeof(float)), kVectorBytes);
    for (int row = 0; row < task.rows && aligned; ++row) aligned = Aligned(task.sources[row] + i * Element::kBytes, kVectorBytes);
    if (aligned) return i;
  }
  return end;
}

// What thread `lane` of `lanes` does of elements [first, end), which they share: each element is done by one of them. The task is
// never copied: a kernel's parameters are to stay in constant memory.
template <typename Element, Finish kFinish>
TT_HOST_DEVICE void SumShare(const RowSum& task, int64_t first, int64_t end, int64_t lane, int64_t lanes) {
  const int64_t head = FirstVector<Element>(task, first, end);
  const int64_t vectors = (end - head) / Element::kPerVector;
  const int64_t tail = head + vectors * Element::kPerVector;
  for (int64_t i = first + lane; i < head; i += lanes) SumElement<Element, kFinish>(task, i);
  for (int64_t v = lane; v < vectors; v += lanes) SumVector<Element, kFinish>(task, head + v * Element::kPerVector);
  for (int64_t i = tail + lane; i < end; i += lanes) SumElement<Element, kFinish>(task, i);
}

}  // namespace row_sum
}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_KERNELS_ROW_SUM_H_
