#include "server/messages/tape_merge.h"

#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

v1::BlockTape MakeTape(int64_t bytes) {
  v1::BlockTape tape;
  v1::Storage* storage = tape.add_storages();
  storage->set_site(7);
  storage->set_bytes(bytes);
  v1::Op* op = tape.add_ops();
  op->set_name("aten::mm");
  op->add_writes(0);
  op->set_replay_workspace_bytes(100 - bytes);
  v1::BackwardEvent* event = tape.add_backward();
  event->set_gradient_live_bytes(bytes);
  event->set_start_live_bytes(100 - bytes);
  return tape;
}

TEST(TapeMerge, TakesTheLargerOfEveryElement) {
  v1::BlockTape tape = MakeTape(10);
  EXPECT_TRUE(SameShape(tape, MakeTape(30)));
  EXPECT_TRUE(RaiseBytes(MakeTape(30), tape));
  EXPECT_EQ(tape.storages(0).bytes(), 30);
  EXPECT_EQ(tape.ops(0).replay_workspace_bytes(), 90);
  EXPECT_EQ(tape.backward(0).gradient_live_bytes(), 30);
  EXPECT_EQ(tape.backward(0).start_live_bytes(), 90);
  EXPECT_FALSE(RaiseBytes(MakeTape(30), tape));
  EXPECT_FALSE(RaiseBytes(MakeTape(10), tape));
}

TEST(TapeMerge, ShapesDifferByOpsSitesAndReaders) {
  const v1::BlockTape tape = MakeTape(10);
  v1::BlockTape other = tape;
  other.mutable_storages(0)->set_site(8);
  EXPECT_FALSE(SameShape(tape, other));
  other = tape;
  other.mutable_ops(0)->set_name("aten::add.Tensor");
  EXPECT_FALSE(SameShape(tape, other));
  other = tape;
  other.mutable_ops(0)->add_reads(0);
  EXPECT_FALSE(SameShape(tape, other));
  other = tape;
  other.add_consumed(0);
  EXPECT_FALSE(SameShape(tape, other));
  other = tape;
  other.add_backward();
  EXPECT_FALSE(SameShape(tape, other));
}

}  // namespace
}  // namespace tidetape::server
