#include "collectives/kernels/row_sum.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "collectives/add_kernels.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

constexpr int kMost = 4099;  // elements
constexpr int kRows = 3;
constexpr float kFactor = 0.3f;
constexpr unsigned char kGuard = 0xa5;

// bfloat16 bits by their definition: sign, 8 bits of exponent, 7 of mantissa.
double BFloat16Value(uint16_t bits) {
  const int exponent = bits >> 7 & 0xff, mantissa = bits & 0x7f;
  const double sign = bits >> 15 ? -1 : 1;
  return exponent == 0 ? sign * std::ldexp(mantissa, -133) : sign * std::ldexp(128 + mantissa, exponent - 134);
}

// Any finite numbers, small enough that no sum of them overflows.
uint32_t RandomBits(std::mt19937& random) {
  uint32_t bits = random();
  if ((bits >> 23 & 0xff) >= 0xf0) bits ^= 1u << 30;
  return bits;
}

// Sums in float64, rounded to float32 after every step: that is float32 arithmetic by its definition, since a float64 holds any sum
// or product of two float32 with more than twice the bits.
struct Reference {
  std::array<std::vector<uint32_t>, kRows> bits;
  std::vector<float> old, stored, added, scaled, scale_added;

  Reference(RowDType dtype, int rows, uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kMost; ++i) {
      double sum = 0;
      for (int row = 0; row < rows; ++row) {
        const uint32_t all = RandomBits(random);
        const uint32_t kept = dtype == RowDType::kBFloat16 ? all >> 16 : all;
        bits[row].push_back(kept);
        const double value = dtype == RowDType::kBFloat16 ? BFloat16Value(kept) : std::bit_cast<float>(kept);
        sum = row == 0 ? value : static_cast<float>(sum + value);
      }
      const double before = std::bit_cast<float>(RandomBits(random));
      const double product = static_cast<float>(double{kFactor} * sum);
      old.push_back(before);
      stored.push_back(sum);
      added.push_back(before + sum);
      scaled.push_back(product);
      scale_added.push_back(before + product);
    }
  }

  const std::vector<float>& of(Finish finish) const {
    return finish == Finish::kStore ? stored : finish == Finish::kAdd ? added : finish == Finish::kScale ? scaled : scale_added;
  }
};

// Bytes that start `shift` bytes after a multiple of 16, with guards at both ends.
class Shifted {
 public:
  Shifted(size_t bytes, int shift) : memory_(bytes + 96, kGuard) {
    const size_t past = reinterpret_cast<uintptr_t>(memory_.data()) % 16;
    start_ = 32 + (16 - past) % 16 + static_cast<size_t>(shift);
  }
  unsigned char* data() { return memory_.data() + start_; }
  bool GuardedBehind(size_t bytes) const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < start_ || i >= start_ + bytes) && memory_[i] != kGuard) return false;
    }
    return true;
  }
  void Reset() { std::fill(memory_.begin(), memory_.end(), kGuard); }

 private:
  std::vector<unsigned char> memory_;
  size_t start_ = 0;
};

template <typename Element>
void RunShares(const RowSum& task, int64_t first, int64_t end, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    switch (task.finish) {
      case Finish::kStore:
        row_sum::SumShare<Element, Finish::kStore>(task, first, end, lane, lanes);
        break;
      case Finish::kAdd:
        row_sum::SumShare<Element, Finish::kAdd>(task, first, end, lane, lanes);
        break;
      case Finish::kScale:
        row_sum::SumShare<Element, Finish::kScale>(task, first, end, lane, lanes);
        break;
      case Finish::kScaleAdd:
        row_sum::SumShare<Element, Finish::kScaleAdd>(task, first, end, lane, lanes);
        break;
    }
  }
}

// The kernel's loop: pieces one after another, threads one after another.
void RunOnHost(const RowSum& task, int64_t piece, int64_t lanes) {
  for (int64_t first = 0; first < task.elements; first += piece) {
    const int64_t end = std::min(first + piece, task.elements);
    if (task.dtype == RowDType::kBFloat16) {
      RunShares<row_sum::BFloat16>(task, first, end, lanes);
    } else {
      RunShares<row_sum::Float32>(task, first, end, lanes);
    }
  }
}

class RowSumTest : public ::testing::TestWithParam<std::tuple<RowDType, Finish>> {
 protected:
  RowDType dtype() const { return std::get<0>(GetParam()); }
  Finish finish() const { return std::get<1>(GetParam()); }
  size_t bytes() const { return dtype() == RowDType::kBFloat16 ? 2 : 4; }

  Shifted Row(const Reference& reference, int row, int shift) const {
    Shifted memory(kMost * bytes(), shift);
    for (int i = 0; i < kMost; ++i) std::memcpy(memory.data() + i * bytes(), &reference.bits[row][i], bytes());
    return memory;
  }

  void Check(const Reference& reference, std::array<Shifted, kRows>& rows, Shifted& destination, int elements, int64_t piece,
             int64_t lanes) const {
    destination.Reset();
    if (elements > 0) std::memcpy(destination.data(), reference.old.data(), elements * sizeof(float));
    RowSum task;
    task.rows = kRows;
    for (int row = 0; row < kRows; ++row) task.sources[row] = rows[row].data();
    task.dtype = dtype();
    task.finish = finish();
    task.factor = kFactor;
    task.destination = destination.data();
    task.elements = elements;
    RunOnHost(task, piece, lanes);
    if (elements > 0) {
      ASSERT_EQ(std::memcmp(destination.data(), reference.of(finish()).data(), elements * sizeof(float)), 0)
          << elements << " elements, " << lanes << " lanes";
    }
    ASSERT_TRUE(destination.GuardedBehind(elements * sizeof(float))) << elements << " elements";
  }
};

// Every size with every alignment of the rows; the destination's alignment turns with the size, so that every pair meets.
TEST_P(RowSumTest, EqualsFloat64RoundedInOrderAtEverySizeAndAlignment) {
  const Reference reference(dtype(), kRows, 1);
  std::array<std::array<Shifted, kRows>, 16> rows = [&]<size_t... kShifts>(std::index_sequence<kShifts...>) {
    return std::array{std::array{Row(reference, 0, kShifts), Row(reference, 1, kShifts), Row(reference, 2, kShifts)}...};
  }
  (std::make_index_sequence<16>());
  std::vector<Shifted> destinations;
  for (int shift = 0; shift < 16; ++shift) destinations.emplace_back(kMost * sizeof(float), shift);
  for (int elements = 0; elements <= kMost; ++elements) {
    for (int shift = 0; shift < 16; ++shift) {
      Check(reference, rows[shift], destinations[(shift + elements / 16) % 16], elements, 16384, 1 + elements % 5);
      if (HasFatalFailure()) FAIL() << "rows " << shift << " bytes off";
    }
  }
}

// Rows that are aligned differently, pieces of any size, more threads than elements.
TEST_P(RowSumTest, PiecesThreadsAndMixedAlignmentsChangeNothing) {
  const Reference reference(dtype(), kRows, 2);
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const auto shift = [&] { return static_cast<int>(random() % 16); };
    std::array<Shifted, kRows> rows = {Row(reference, 0, shift()), Row(reference, 1, shift()), Row(reference, 2, shift())};
    Shifted destination(kMost * sizeof(float), shift());
    Check(reference, rows, destination, random() % (kMost + 1), 1 + random() % 3000, 1 + random() % 300);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowSumTest,
                         ::testing::Combine(::testing::Values(RowDType::kBFloat16, RowDType::kFloat32),
                                            ::testing::Values(Finish::kStore, Finish::kAdd, Finish::kScale, Finish::kScaleAdd)));

// What GPUs and CPUs of one job compute is the same.
TEST(RowSumTest, EqualsTheExecutorsOwnSums) {
  const Reference reference(RowDType::kBFloat16, kRows, 4);
  std::vector<uint16_t> rows[kRows];
  RowSum task;
  std::vector<const std::byte*> sources;
  for (int row = 0; row < kRows; ++row) {
    rows[row].assign(reference.bits[row].begin(), reference.bits[row].end());
    task.sources[row] = reinterpret_cast<const unsigned char*>(rows[row].data());
    sources.push_back(reinterpret_cast<const std::byte*>(rows[row].data()));
  }
  std::vector<float> here = reference.old, there = reference.old;
  task.rows = kRows;
  task.finish = Finish::kScaleAdd;
  task.factor = kFactor;
  task.destination = reinterpret_cast<unsigned char*>(here.data());
  task.elements = kMost;
  RunOnHost(task, 512, 256);
  ScaleSum(reinterpret_cast<std::byte*>(there.data()), sources, DType::kBFloat16, kFactor, true, kMost);
  EXPECT_EQ(here, there);
}

}  // namespace
}  // namespace tidetape::collectives
