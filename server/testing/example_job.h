// A small job for tests, whose plans can be worked out by hand.
//
// Two equal blocks. In each, op 0 (10 ms) makes storage 1 (100 bytes) from the block's input, op 1 (1 ms) makes storage 2 (100
// bytes) from storage 1; backward reads both. The head stands on 1000 bytes, every block on 900. So:
//   everything kept            peak 1000 + 400 = 1400, replay 0
//   limit 1300                 one block replays storage 2: peak 1300, replay 1 ms
//   limit 1200                 both replay storage 2: peak 1200, replay 2 ms
#ifndef TIDETAPE_SERVER_TESTING_EXAMPLE_JOB_H_
#define TIDETAPE_SERVER_TESTING_EXAMPLE_JOB_H_

#include <cstdint>
#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

inline constexpr uint64_t kExampleHash = 0xABCD;

inline v1::BlockTape ExampleTape() {
  v1::BlockTape tape;
  tape.set_name("layers.0");
  tape.set_structure_hash(kExampleHash);
  v1::Storage* input = tape.add_storages();
  input->set_kind(v1::Storage::KIND_BLOCK_INPUT);
  input->set_bytes(50);
  for (int i = 1; i <= 2; ++i) {
    v1::Storage* storage = tape.add_storages();
    storage->set_kind(v1::Storage::KIND_INTERMEDIATE);
    storage->set_bytes(100);
    storage->set_site(i);
    storage->set_label("aten::op" + std::to_string(i));
    v1::Op* op = tape.add_ops();
    op->set_name("aten::op" + std::to_string(i));
    op->set_replayable(true);
    op->set_cost_seconds(i == 1 ? 0.010 : 0.001);
    op->add_reads(i - 1);
    op->add_writes(i);
    tape.add_consumed(i);
  }
  return tape;
}

inline v1::StepReport ExampleReport(int64_t step = 1) {
  v1::StepReport report;
  report.set_step(step);
  report.set_step_seconds(0.25);
  v1::MemoryProfile* profile = report.mutable_profile();
  profile->set_steady(true);
  profile->set_head_peak_bytes(1000);
  profile->set_optimizer_peak_bytes(500);
  for (int k = 0; k < 2; ++k) {
    v1::ProfiledBlock* block = profile->add_blocks();
    block->set_structure_hash(kExampleHash);
    block->mutable_instance()->set_name("layers." + std::to_string(k));
    block->mutable_instance()->set_forward_base_bytes(900);
    block->mutable_instance()->set_backward_base_bytes(900);
  }
  return report;
}

inline v1::Hello ExampleHello(int32_t rank = 0, int32_t world_size = 1, const std::string& incarnation = "first",
                              int64_t order = 1) {
  v1::Hello hello;
  hello.set_job("example");
  hello.set_incarnation(incarnation);
  hello.set_incarnation_order(order);
  hello.set_rank(rank);
  hello.set_world_size(world_size);
  hello.set_node("node" + std::to_string(rank));
  hello.set_device("cpu");
  hello.set_memory_limit_bytes(1300);
  hello.add_structure_hashes(kExampleHash);
  return hello;
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_EXAMPLE_JOB_H_
