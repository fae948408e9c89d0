#include "agent/session/structure.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <unordered_map>

#include "agent/tape/block.h"

namespace tidetape::agent {
namespace {

constexpr size_t kSamples = 32;
// What an op is thought to cost that no replay has timed: about one dispatch with a small kernel.
constexpr double kUnmeasuredSeconds = 1e-5;

std::string Shape(const Tape& tape, const ValueRef& value) {
  std::ostringstream text;
  const int64_t* words = tape.geometry.data() + value.geometry;
  text << " [";
  for (int64_t i = 0; i < words[0]; ++i) text << (i ? ", " : "") << words[2 + i];
  text << "] " << c10::toString(value.dtype);
  return text.str();
}

tt_indices Indices(const std::vector<int32_t>& list) { return {list.data(), list.size()}; }

}  // namespace

Structure::Structure(const Tape& tape) : name_(tape.block->name()), hash_(tape.structure_hash), consumed_(tape.consumed) {
  std::vector<std::string> labels(tape.storages.size());
  std::unordered_map<std::string, int> seen;
  for (const OpRecord& record : tape.ops) {
    Op op;
    op.name = record.facts->name;
    op.replayable = record.replayable;
    std::set<int32_t> reads, writes;
    for (uint32_t v = record.first_value; v < record.first_output; ++v) {
      if (tape.values[v].storage >= 0) reads.insert(tape.values[v].storage);
    }
    for (uint32_t w = record.first_write; w < record.end_write; ++w) writes.insert(tape.writes[w]);
    const int occurrence = seen[op.name]++;
    for (uint32_t v = record.first_output; v < record.end_output; ++v) {
      const ValueRef& value = tape.values[v];
      if (value.storage < 0 || tape.storages[value.storage].creator != static_cast<int32_t>(ops_.size())) continue;
      writes.insert(value.storage);
      if (labels[value.storage].empty()) {
        labels[value.storage] = op.name + "#" + std::to_string(occurrence) + Shape(tape, value);
      }
    }
    op.reads.assign(reads.begin(), reads.end());
    op.writes.assign(writes.begin(), writes.end());
    // Writes to what was there before the block are not the planner's concern.
    op.writes.erase(std::remove_if(op.writes.begin(), op.writes.end(),
                                   [&](int32_t s) { return tape.storages[s].kind != StorageKind::kIntermediate; }),
                    op.writes.end());
    ops_.push_back(std::move(op));
  }
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const StorageRecord& record = tape.storages[s];
    Storage storage;
    storage.bytes = record.bytes;
    storage.site = record.site;
    storage.kind = record.kind;
    storage.must_save = record.must_save;
    storage.label = labels[s];
    if (record.kind == StorageKind::kParameter) storage.label = tape.block->ParameterName(record.site);
    if (storage.label.empty()) storage.label = "input";
    storages_.push_back(std::move(storage));
  }
  workspaces_.assign(ops_.size(), 0);
}

void Structure::AddCosts(const Tape& tape) {
  if (tape.op_seconds.size() != ops_.size()) return;
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (tape.op_seconds[i] < 0) continue;
    Op& op = ops_[i];
    if (op.seconds.size() < kSamples) {
      op.seconds.push_back(tape.op_seconds[i]);
    } else {
      op.seconds[op.next_sample++ % kSamples] = tape.op_seconds[i];
    }
    workspaces_[i] = std::max(workspaces_[i], tape.op_workspace[i]);
  }
}

std::vector<double> Structure::Costs() const {
  std::vector<double> costs;
  costs.reserve(ops_.size());
  for (const Op& op : ops_) {
    if (op.seconds.empty()) {
      costs.push_back(-1);
      continue;
    }
    std::vector<float> sorted = op.seconds;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    costs.push_back(sorted[sorted.size() / 2]);
  }
  return costs;
}

tt_link_status Structure::Send(tt_link_status (*put_tape)(tt_link*, const tt_block_tape*), tt_link* link,
                               const std::vector<BackwardMark>& backward, int64_t base_bytes) const {
  std::vector<tt_storage> storages;
  for (const Storage& storage : storages_) {
    tt_storage out = {};
    out.bytes = storage.bytes;
    out.site = storage.site;
    out.label = storage.label.c_str();
    out.kind = storage.kind == StorageKind::kIntermediate ? TT_STORAGE_INTERMEDIATE
               : storage.kind == StorageKind::kParameter  ? TT_STORAGE_PARAMETER
                                                          : TT_STORAGE_BLOCK_INPUT;
    out.must_save = storage.kind == StorageKind::kIntermediate && storage.must_save;
    storages.push_back(out);
  }
  const std::vector<double> costs = Costs();
  std::vector<tt_op> ops;
  ops.reserve(ops_.size());
  for (size_t i = 0; i < ops_.size(); ++i) {
    tt_op out = {};
    out.name = ops_[i].name.c_str();
    out.cost_seconds = costs[i] < 0 ? kUnmeasuredSeconds : costs[i];
    out.reads = Indices(ops_[i].reads);
    out.writes = Indices(ops_[i].writes);
    out.replay_workspace_bytes = workspaces_[i];
    out.replayable = ops_[i].replayable;
    ops.push_back(out);
  }
  std::vector<tt_backward_event> events;
  events.reserve(backward.size());
  for (const BackwardMark& mark : backward) {
    events.push_back({Indices(mark.reads), Indices(mark.releases), std::max<int64_t>(0, mark.peak_bytes - base_bytes),
                      std::max<int64_t>(0, mark.start_bytes - base_bytes)});
  }
  tt_block_tape tape = {};
  tape.name = name_.c_str();
  tape.structure_hash = hash_;
  tape.storages = storages.data();
  tape.num_storages = storages.size();
  tape.ops = ops.data();
  tape.num_ops = ops.size();
  tape.consumed = Indices(consumed_);
  tape.backward = events.data();
  tape.num_backward = events.size();
  return put_tape(link, &tape);
}

std::string Structure::ToText() const {
  std::ostringstream text;
  const std::vector<double> costs = Costs();
  text << "block " << name_ << ", structure " << std::hex << hash_ << std::dec << "\n";
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    text << "  " << i << " " << op.name << (op.replayable ? "" : " (kept)");
    text << " reads";
    for (const int32_t s : op.reads) text << " %" << s;
    text << " writes";
    for (const int32_t s : op.writes) text << " %" << s << " (" << storages_[s].bytes << " B, " << storages_[s].label << ")";
    if (costs[i] >= 0) text << " " << costs[i] * 1e6 << " us";
    text << "\n";
  }
  text << "  backward reads";
  for (const int32_t s : consumed_) text << " %" << s;
  text << "\n";
  return text.str();
}

}  // namespace tidetape::agent
