// For tests and for looking at the status page: jobs that nobody trains, connected to a real server.
//
//   fake_jobs HOST:PORT     says "ready" once the plans are there, and stays until its standard input ends
//
// "pretrain-70b" has 8 ranks on nodes with long names and 32 blocks of a few GiB, measured; a block's values carry labels as agents
// send them. "example" is the small job of example_job.h, "finished" has said goodbye, "waiting" lacks a rank.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"

namespace tidetape::server {
namespace {

constexpr int kRanks = 8;
constexpr int kBlocks = 32;
constexpr uint64_t kLayerHash = 0x70B;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kBase = 40'000 * kMiB;

struct Value {
  const char* label;
  int64_t mebibytes;
  double milliseconds;
};
constexpr Value kValues[] = {{"aten::rms_norm", 64, 0.2},      {"aten::mm (q_proj)", 64, 1.6},
                             {"aten::mm (k_proj)", 8, 0.3},    {"aten::mm (v_proj)", 8, 0.3},
                             {"aten::sdpa <flash>", 66, 2.4},  {"aten::mm (o_proj)", 64, 1.6},
                             {"aten::rms_norm", 64, 0.2},      {"aten::mm (gate_proj)", 224, 5.1},
                             {"aten::mm (up_proj)", 224, 5.1}, {"aten::silu", 224, 0.4},
                             {"aten::mul", 224, 0.4}};

// A chain: each value is made of the one before it, and all are read in backward.
v1::BlockTape LayerTape() {
  v1::BlockTape tape;
  tape.set_name("model.layers.0");
  tape.set_structure_hash(kLayerHash);
  v1::Storage* input = tape.add_storages();
  input->set_kind(v1::Storage::KIND_BLOCK_INPUT);
  input->set_bytes(64 * kMiB);
  int index = 0;
  for (const Value& value : kValues) {
    v1::Storage* storage = tape.add_storages();
    storage->set_kind(v1::Storage::KIND_INTERMEDIATE);
    storage->set_bytes(value.mebibytes * kMiB);
    storage->set_site(++index);
    storage->set_label(value.label);
    v1::Op* op = tape.add_ops();
    op->set_name(value.label);
    op->set_replayable(true);
    op->set_cost_seconds(value.milliseconds / 1000);
    op->add_reads(index - 1);
    op->add_writes(index);
    tape.add_consumed(index);
  }
  return tape;
}

v1::StepReport LayerReport(int rank) {
  v1::StepReport report;
  report.set_step(1200);
  report.set_step_seconds(2.31 + 0.01 * rank);
  report.set_step_peak_bytes(kBase + (18'900 + 130 * rank) * kMiB);
  report.set_saved_bytes(20'000 * kMiB);
  report.set_replay_seconds(0.21);
  report.set_replayed_ops(96);
  v1::MemoryProfile* profile = report.mutable_profile();
  profile->set_steady(true);
  profile->set_head_peak_bytes(kBase + 3'000 * kMiB);
  profile->set_optimizer_peak_bytes(kBase + 500 * kMiB);
  for (int k = 0; k < kBlocks; ++k) {
    v1::ProfiledBlock* block = profile->add_blocks();
    block->set_structure_hash(kLayerHash);
    block->mutable_instance()->set_name("model.layers." + std::to_string(k));
    block->mutable_instance()->set_forward_base_bytes(kBase + 700 * kMiB);
    block->mutable_instance()->set_backward_base_bytes(kBase + 900 * kMiB);
  }
  // What is alive rises by what each block keeps, and falls again.
  for (int k = 0; k < kBlocks; ++k) {
    report.add_live_bytes(kBase + 600 * k * kMiB);
    report.add_live_bytes(kBase + 600 * (k + 1) * kMiB);
  }
  for (int k = kBlocks; k > 0; --k) {
    report.add_live_bytes(kBase + (600 * k + 300) * kMiB);
    report.add_live_bytes(kBase + (600 * (k - 1) + 150) * kMiB);
  }
  return report;
}

std::vector<std::unique_ptr<FakeAgent>> ConnectLarge(const std::string& address) {
  std::vector<std::unique_ptr<FakeAgent>> agents;
  for (int rank = 0; rank < kRanks; ++rank) {
    v1::Hello hello;
    hello.set_job("pretrain-70b");
    hello.set_incarnation("run-2026-03-01T12.00.00-7f3a9c51");
    hello.set_incarnation_order(1);
    hello.set_rank(rank);
    hello.set_world_size(kRanks);
    hello.set_node("gpu-node-00" + std::to_string(17 + rank / 2) + ".rack-b.cluster.example");
    hello.set_device("NVIDIA H200");
    hello.set_torch_version("2.14.1");
    hello.set_memory_limit_bytes(60'000 * kMiB);
    hello.add_structure_hashes(kLayerHash);
    agents.push_back(std::make_unique<FakeAgent>(address, hello));
    agents.back()->SendTape(LayerTape());
    agents.back()->SendReport(LayerReport(rank));
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const int64_t generation = agents[rank]->WaitForPlan(1).generation();
    agents[rank]->SendActivated(generation, 1201);
    v1::StepReport report = LayerReport(rank);
    report.set_step(1201);
    report.set_generation(generation);
    agents[rank]->WaitForAck(agents[rank]->SendReport(report));
  }
  return agents;
}

std::unique_ptr<FakeAgent> ConnectSmall(const std::string& address, const std::string& job, int32_t world_size) {
  v1::Hello hello = ExampleHello(0, world_size);
  hello.set_job(job);
  auto agent = std::make_unique<FakeAgent>(address, hello);
  agent->SendTape(ExampleTape());
  agent->WaitForAck(agent->SendReport(ExampleReport()));
  if (world_size == 1) agent->WaitForPlan(1);
  return agent;
}

int Run(const std::string& address) {
  const auto large = ConnectLarge(address);
  const auto example = ConnectSmall(address, "example", 1);
  const auto waiting = ConnectSmall(address, "waiting", 2);
  const auto finished = ConnectSmall(address, "finished", 1);
  finished->HalfClose();
  finished->WaitForEnd();
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

}  // namespace
}  // namespace tidetape::server

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "fake_jobs HOST:PORT\n";
    return 2;
  }
  return tidetape::server::Run(argv[1]);
}
