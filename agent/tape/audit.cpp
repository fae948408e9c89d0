#include "agent/tape/audit.h"

#include <cstring>
#include <exception>
#include <utility>

#include "agent/measure/step_profile.h"
#include "agent/tape/block.h"
#include "agent/tape/replayer.h"
#include "agent/tape/rng.h"

namespace tidetape::agent {
namespace {

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().contiguous();
  const at::Tensor y = b.cpu().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace

void AuditedValues::Add(const Tape& tape, const ValueRef& value, StorageRef original) {
  StepProfile::Get().AddPlanned(tape.storages[value.storage].bytes);
  entries_.push_back({value, std::move(original)});
}

void AuditedValues::CompareWritten(Tape& tape, int32_t op) {
  for (Entry& entry : entries_) {
    StorageRecord& record = tape.storages[entry.value.storage];
    if (record.last_writer != op || !record.replayed || record.replayed.get() == entry.original.get()) continue;
    entry.demoted = !SameBits(tape.Build(entry.value, record.replayed), tape.Build(entry.value, entry.original));
  }
  // What comes after reads the original: a value is demoted for its own sake, not for that of one that it was made from.
  for (const Entry& entry : entries_) {
    if (tape.storages[entry.value.storage].last_writer == op) tape.SetReplayed(entry.value.storage, entry.original);
  }
}

void AuditedValues::Audit(Tape& tape) {
  std::vector<StorageRef> kept;
  kept.reserve(tape.storages.size());
  for (const StorageRecord& record : tape.storages) kept.push_back(record.kept);
  const bool measured = std::exchange(tape.measured_costs, false);
  // An op that draws and does not say so would move it.
  RngStates generator;
  const RngStates::Scope unmoved(generator, generator.Note(DefaultGenerator(c10::DeviceType::CPU)));
  try {
    ReplayAll(tape, [&](int32_t op) { CompareWritten(tape, op); });
  } catch (const std::exception&) {
    // The op that failed will fail again, and nothing after it was compared.
    for (size_t i = 0; i < tape.ops.size(); ++i) {
      if (!tape.needed[i] || tape.done[i]) continue;
      const OpRecord& op = tape.ops[i];
      for (uint32_t v = op.first_output; v < op.end_output; ++v) {
        if (tape.values[v].storage >= 0) tape.block->demoted.insert(tape.storages[tape.values[v].storage].site);
      }
      for (Entry& entry : entries_) entry.demoted |= tape.storages[entry.value.storage].last_writer >= static_cast<int32_t>(i);
      break;
    }
  }
  tape.measured_costs = measured;
  tape.ForgetReplay();
  for (size_t s = 0; s < kept.size(); ++s) {
    if (kept[s]) tape.Keep(static_cast<int32_t>(s), std::move(kept[s]));
  }
  for (Entry& entry : entries_) {
    StorageRecord& record = tape.storages[entry.value.storage];
    StepProfile::Get().AddPlanned(-record.bytes);
    if (!entry.demoted) continue;
    record.must_save = true;
    tape.block->demoted.insert(record.site);
    tape.Keep(entry.value.storage, std::move(entry.original));
  }
  entries_.clear();
  tape.Prepare();
}

}  // namespace tidetape::agent
