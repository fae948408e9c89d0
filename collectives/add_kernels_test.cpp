#include "collectives/add_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

// The value of bfloat16 bits by its definition: sign, 8 bits of exponent, 7 of mantissa.
double BFloat16Value(uint16_t bits) {
  const int exponent = bits >> 7 & 0xff, mantissa = bits & 0x7f;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 0xff) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -126 - 7);
  return sign * std::ldexp(128 + mantissa, exponent - 127 - 7);
}

// Rounded once: the sum of two such numbers is a double exactly where their exponents are near, and else the compiler's scalar add
// is the IEEE definition.
float Sum(float a, float b) {
  volatile float x = a, y = b;
  return x + y;
}
float Product(float a, float b) {
  volatile float x = a, y = b;
  return x * y;
}

void ExpectSameBits(float actual, float expected) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(actual));
  } else {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected)) << actual << " against " << expected;
  }
}

// A buffer whose first element is `shift` bytes off any alignment, with guards at both ends.
class Unaligned {
 public:
  Unaligned(size_t bytes, int shift) : memory_(bytes + 128, std::byte{0xa5}), shift_(shift), bytes_(bytes) {}
  std::byte* data() { return memory_.data() + 64 + shift_; }
  const std::byte* data() const { return memory_.data() + 64 + shift_; }
  template <typename T>
  T At(int64_t i) const {
    T value;
    std::memcpy(&value, data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void Set(int64_t i, T value) {
    std::memcpy(data() + i * sizeof(T), &value, sizeof(T));
  }
  bool Intact() const {
    for (const std::byte* at = memory_.data(); at < memory_.data() + memory_.size(); ++at) {
      if ((at < data() || at >= data() + bytes_) && *at != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> memory_;
  int shift_;
  size_t bytes_;
};

TEST(AddKernelsTest, ConvertsEveryBFloat16Exactly) {
  Unaligned source(65536 * 2, 0), destination(65536 * 4, 0);
  for (int i = 0; i < 65536; ++i) source.Set<uint16_t>(i, i);
  StoreFloats(destination.data(), source.data(), DType::kBFloat16, 65536);
  for (int i = 0; i < 65536; ++i) ExpectSameBits(destination.At<float>(i), static_cast<float>(BFloat16Value(i)));
}

TEST(AddKernelsTest, AddsAtAnyLengthAndAlignment) {
  std::mt19937 random(1);
  for (int length = 0; length < 150; ++length) {
    for (int shift : {0, 1, 2, 4, 6, 31}) {
      for (DType dtype : {DType::kBFloat16, DType::kFloat32}) {
        const int64_t size = DTypeBytes(dtype);
        Unaligned source(length * size, shift), destination(length * 4, (shift * 3) % 32);
        std::vector<float> expected;
        for (int i = 0; i < length; ++i) {
          // Any bits: infinities, NaNs and denormals too.
          const uint32_t bits = random(), old_bits = random();
          const float old = std::bit_cast<float>(old_bits);
          float value = std::bit_cast<float>(bits);
          if (dtype == DType::kBFloat16) {
            source.Set<uint16_t>(i, bits);
            value = static_cast<float>(BFloat16Value(bits));
          } else {
            source.Set<float>(i, value);
          }
          destination.Set<float>(i, old);
          expected.push_back(Sum(old, value));
        }
        AddFloats(destination.data(), source.data(), dtype, length);
        for (int i = 0; i < length; ++i) ExpectSameBits(destination.At<float>(i), expected[i]);
        ASSERT_TRUE(destination.Intact());
      }
    }
  }
}

TEST(AddKernelsTest, SumsInTheOrderOfTheSources) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int length : {0, 1, 15, 2047, 2048, 2049, 5000}) {
    for (int count : {1, 2, 3, 8}) {
      std::vector<Unaligned> sources;
      std::vector<const std::byte*> places;
      for (int s = 0; s < count; ++s) {
        sources.emplace_back(length * 2, 2 * s + 1);
        for (int i = 0; i < length; ++i) sources[s].Set<uint16_t>(i, std::bit_cast<uint32_t>(normal(random)) >> 16);
      }
      places.reserve(sources.size());
      for (Unaligned& source : sources) places.push_back(source.data());
      Unaligned destination(length * 4, 1);
      for (int i = 0; i < length; ++i) destination.Set(i, 1e30f);  // what was there must not count
      SumFloats(destination.data(), places, DType::kBFloat16, length);
      for (int i = 0; i < length; ++i) {
        float expected = static_cast<float>(BFloat16Value(sources[0].At<uint16_t>(i)));
        for (int s = 1; s < count; ++s) expected = Sum(expected, static_cast<float>(BFloat16Value(sources[s].At<uint16_t>(i))));
        ExpectSameBits(destination.At<float>(i), expected);
      }
      ASSERT_TRUE(destination.Intact());
      // The same, scaled, over what was there or added to it.
      for (bool accumulate : {false, true}) {
        Unaligned output(length * 4, 2);
        for (int i = 0; i < length; ++i) output.Set(i, 0.75f);
        ScaleSum(output.data(), places, DType::kBFloat16, 1.0f / 3, accumulate, length);
        for (int i = 0; i < length; ++i) {
          const float scaled = Product(1.0f / 3, destination.At<float>(i));
          ExpectSameBits(output.At<float>(i), accumulate ? Sum(0.75f, scaled) : scaled);
        }
        ASSERT_TRUE(output.Intact());
      }
    }
  }
}

TEST(AddKernelsTest, ScalesWithTwoRoundings) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (int length : {0, 1, 7, 16, 33, 1000}) {
    for (bool accumulate : {false, true}) {
      Unaligned source(length * 4, 3), destination(length * 4, 1);
      std::vector<float> expected;
      const float factor = 1.0f / 3;
      for (int i = 0; i < length; ++i) {
        const float value = normal(random), old = normal(random);
        source.Set(i, value);
        destination.Set(i, old);
        expected.push_back(accumulate ? Sum(old, Product(factor, value)) : Product(factor, value));
      }
      ScaleFloats(destination.data(), source.data(), factor, accumulate, length);
      for (int i = 0; i < length; ++i) ExpectSameBits(destination.At<float>(i), expected[i]);
      ASSERT_TRUE(destination.Intact());
    }
  }
}

}  // namespace
}  // namespace tidetape::collectives
