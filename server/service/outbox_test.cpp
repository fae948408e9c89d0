#include "server/service/outbox.h"

#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

using Kind = v1::ConnectResponse::MessageCase;

std::shared_ptr<const v1::Plan> MakePlan(int64_t generation) {
  auto plan = std::make_shared<v1::Plan>();
  plan->set_generation(generation);
  return plan;
}

TEST(Outbox, NothingLeavesBeforeTheWelcome) {
  Outbox outbox;
  outbox.PutPlan(MakePlan(1));
  outbox.PutAck(1);
  outbox.PutDrain(1);
  EXPECT_FALSE(outbox.Take().has_value());
  outbox.PutWelcome(v1::Welcome());
  EXPECT_EQ(outbox.Take()->message_case(), Kind::kWelcome);
  EXPECT_EQ(outbox.Take()->message_case(), Kind::kAck);
  EXPECT_EQ(outbox.Take()->message_case(), Kind::kPlan);
  EXPECT_EQ(outbox.Take()->message_case(), Kind::kDrain);
  EXPECT_FALSE(outbox.Take().has_value());
}

TEST(Outbox, KeepsTheNewestOfEachKind) {
  Outbox outbox;
  outbox.PutWelcome(v1::Welcome());
  outbox.Take();
  for (int i = 1; i <= 1000; ++i) {
    outbox.PutAck(i);
    outbox.PutTapeRequest({static_cast<uint64_t>(i % 2)});
    outbox.PutPlan(MakePlan(i));
  }
  outbox.PutPlan(MakePlan(7));
  EXPECT_EQ(outbox.Take()->ack().sequence(), 1000);
  EXPECT_EQ(outbox.Take()->tape_request().structure_hashes_size(), 2);
  EXPECT_EQ(outbox.Take()->plan().generation(), 1000);
  EXPECT_FALSE(outbox.Take().has_value());
}

TEST(Outbox, AnAckIsSentOnce) {
  Outbox outbox;
  outbox.PutWelcome(v1::Welcome());
  outbox.Take();
  outbox.PutAck(3);
  outbox.Take();
  outbox.PutAck(3);
  EXPECT_FALSE(outbox.Take().has_value());
}

}  // namespace
}  // namespace tidetape::server
