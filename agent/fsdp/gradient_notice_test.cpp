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
