#include "agent/fsdp/gradient_notice.h"

#include <gtest/gtest.h>

namespace tidetape::agent {
namespace {

const std::vector<std::string> kUnits = {"blocks.0", "blocks.1"};

GradientNotice Notice(std::vector<bool> present) { return {1, false, 4, true, std::move(present)}; }

TEST(GradientNotice, IsTheSameAfterTheWay) {
  // More than one byte of parameters, and not a whole number of them.
  GradientNotice notice = Notice({true, false, false, true, true, false, false, false, true, false, true});
  notice.widened = true;
  const GradientNotice back = GradientNotice::Decode(notice.Encode(), notice.present.size());
  EXPECT_EQ(back.unit, 1);
  EXPECT_TRUE(back.widened);
  EXPECT_EQ(back.divide_factor, 4);
  EXPECT_EQ(back.present, notice.present);
  EXPECT_EQ(notice.Encode().size(), GradientNotice::EncodedBytes(11));
}

TEST(GradientNotice, CarriesThePacing) {
  GradientNotice notice = Notice({true});
  notice.pacing = {3, 5, 0x123456789abcdef0, 0xfedcba9876543210, false};
  const PacingNotice back = GradientNotice::Decode(notice.Encode(), 1).pacing;
  EXPECT_EQ(back.in_force, 3);
  EXPECT_EQ(back.armed, 5);
  EXPECT_EQ(back.armed_hash, 0x123456789abcdef0U);
  EXPECT_EQ(back.told_hash, 0xfedcba9876543210U);
  EXPECT_FALSE(back.armed_by_all);
}

TEST(GradientNotice, PacingIsArmedByAllWhereAllSayTheSame) {
  const auto merged = [](const PacingNotice& a, const PacingNotice& b) {
    GradientNotice own = Notice({true}), other = Notice({true});
    own.pacing = a;
    other.pacing = b;
    EXPECT_TRUE(own.Merge(other, 2, kUnits).ok());
    return own.pacing.armed_by_all;
  };
  EXPECT_TRUE(merged({1, 2, 7, 9}, {1, 2, 7, 9}));
  EXPECT_FALSE(merged({1, 2, 7, 9}, {1, 3, 7, 9}));         // another generation
  EXPECT_FALSE(merged({1, 2, 7, 9}, {1, 2, 8, 9}));         // the same number, but another pacing
  EXPECT_FALSE(merged({1, 2, 7, 9}, {1, 2, 7, 8}));         // the same pacing, but other slots told free
  EXPECT_FALSE(merged({1, 2, 7, 9}, {1, 2, 7, 9, false}));  // it has merged a rank that says something else
  EXPECT_FALSE(merged({1, 2, 7, 9, false}, {1, 2, 7, 9}));
}

TEST(GradientNotice, OtherPacingGenerationsAreNamed) {
  GradientNotice own = Notice({true}), other = Notice({true});
  own.pacing.in_force = 4;
  other.pacing.in_force = 5;
  const absl::Status status = own.Merge(other, 2, kUnits);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("rank 2 reduces the gradients of unit 'blocks.1' under pacing generation 5, this rank under 4"),
            absl::string_view::npos)
      << status;
}

TEST(GradientNotice, IsThereWhereSomeRankHasIt) {
  GradientNotice own = Notice({true, false, false});
  ASSERT_TRUE(own.Merge(Notice({false, false, true}), 2, kUnits).ok());
  EXPECT_EQ(own.present, (std::vector<bool>{true, false, true}));
  EXPECT_FALSE(own.widened);
}

TEST(GradientNotice, IsWideWhereSomeRankHasFloats) {
  GradientNotice own = Notice({true}), other = Notice({true});
  other.widened = true;
  ASSERT_TRUE(own.Merge(other, 2, kUnits).ok());
  EXPECT_TRUE(own.widened);
}

TEST(GradientNotice, ASlotIsVacatedWhereAllRanksHaveVacatedIt) {
  GradientNotice own = Notice({true}), other = Notice({true});
  ASSERT_TRUE(own.Merge(GradientNotice::Decode(other.Encode(), 1), 2, {}).ok());
  EXPECT_TRUE(own.slot_vacated);
  other.slot_vacated = false;
  ASSERT_TRUE(own.Merge(GradientNotice::Decode(other.Encode(), 1), 2, {}).ok());
  EXPECT_FALSE(own.slot_vacated);
}

TEST(GradientNotice, OtherUnitsAreNamed) {
  GradientNotice own = Notice({true}), other = Notice({true});
  other.unit = 0;
  const absl::Status status = own.Merge(other, 2, kUnits);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("rank 2 reduces the gradients of unit 'blocks.0', this rank those of 'blocks.1'"),
            absl::string_view::npos)
      << status;
}

TEST(GradientNotice, OtherFactorsAreNamed) {
  GradientNotice own = Notice({true}), other = Notice({true});
  other.divide_factor = 3;
  const absl::Status status = own.Merge(other, 2, kUnits);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'blocks.1' by 3, this rank by 4"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tidetape::agent
