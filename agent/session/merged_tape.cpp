#include "agent/session/merged_tape.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "agent/session/merge_order.h"
#include "agent/tape/block.h"

namespace tidetape::agent {
namespace {

constexpr size_t kSamples = 32;
// Sizes are told of so many recordings.
constexpr size_t kSizeSamples = 16;
// What an op is thought to cost that no replay has timed: about one dispatch with a small kernel.
constexpr double kUnmeasuredSeconds = 1e-5;
// The planner hears of a tape again when in so many recordings in a row more than this share of what backward reads was new to it,
// and would follow the plan's default, or when they were larger by as much.
constexpr double kStrangeRatio = 0.2;
constexpr int32_t kStrangeRecordings = 3;

std::string Shape(const Tape& tape, const ValueRef& value) {
  std::ostringstream text;
  text << " [";
  const char* separator = "";
  for (const int64_t size : tape.views.sizes(value.view)) text << std::exchange(separator, ", ") << size;
  text << "] " << c10::toString(tape.views.dtype(value.view));
  return text.str();
}

tt_indices Indices(const std::vector<int32_t>& list) { return {list.data(), list.size()}; }

void AddIndex(std::vector<int32_t>& sorted, int32_t index) {
  const auto place = std::lower_bound(sorted.begin(), sorted.end(), index);
  if (place == sorted.end() || *place != index) sorted.insert(place, index);
}

// Names an op by what it makes; one that makes nothing new, by what it writes and which write of that it is.
uint64_t KeyOf(const Tape& tape, int32_t index, std::unordered_map<uint64_t, uint64_t>& occurrences) {
  const OpRecord& op = tape.ops[index];
  uint64_t key = op.facts->name_hash;
  for (uint32_t v = op.first_output; v < op.end_output; ++v) {
    const int32_t storage = tape.values[v].storage;
    if (storage < 0 || tape.storages[storage].creator != index) continue;
    key = tape.storages[storage].site;
    break;
  }
  if (key == op.facts->name_hash && op.first_write < op.end_write) key = Mix(key, tape.storages[tape.writes[op.first_write]].site);
  return Mix(key, occurrences[key]++);
}

// What happens to a value, and why.
const char* FateOf(const SiteInfo& storage, const BlockActions* actions) {
  if (storage.must_save) return storage.consumed ? "kept, it cannot be reproduced" : "kept for replays, it cannot be reproduced";
  if (actions != nullptr && actions->move.count(storage.site) > 0) {
    return storage.consumed ? "moved to host memory by the plan" : "moved to host memory by the plan where a replay starts from it";
  }
  if (actions != nullptr && actions->save.count(storage.site) > 0) {
    return storage.consumed ? "kept by the plan" : "kept by the plan where a replay starts from it";
  }
  if (!storage.consumed) return "let go, backward does not read it";
  if (actions != nullptr && actions->save_by_default && actions->replay.count(storage.site) == 0) return "kept by default";
  if (actions != nullptr && actions->replay.count(storage.site) > 0) return "replayed by the plan";
  return "replayed by default";
}

void PrintStorage(size_t number, const SiteInfo& storage, const char* fate, std::ostream& text) {
  text << "%" << number << " site " << std::hex << storage.site << std::dec << ", " << storage.label << ", " << storage.bytes
       << " B: " << fate << "\n";
}

template <class Item>
std::vector<uint64_t> KeysOf(const std::vector<Item>& items) {
  std::vector<uint64_t> keys;
  keys.reserve(items.size());
  for (const Item& item : items) keys.push_back(item.key);
  return keys;
}

}  // namespace

std::vector<int32_t> MergedTape::AddStorages(const Tape& tape, bool& larger) {
  std::vector<std::string> labels(tape.storages.size());
  std::unordered_map<std::string, int> seen;
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    const OpRecord& op = tape.ops[i];
    const int occurrence = seen[op.facts->name]++;
    for (uint32_t v = op.first_output; v < op.end_output; ++v) {
      const ValueRef& value = tape.values[v];
      if (value.storage < 0 || tape.storages[value.storage].creator != static_cast<int32_t>(i)) continue;
      if (!labels[value.storage].empty()) continue;
      labels[value.storage] = op.facts->name + "#" + std::to_string(occurrence) + Shape(tape, value);
    }
  }
  std::vector<int32_t> numbers;
  numbers.reserve(tape.storages.size());
  std::unordered_set<Site> met;
  int64_t consumed_bytes = 0;
  if (own_ != 0) samples_.emplace_back();
  if (samples_.size() > kSizeSamples) samples_.pop_front();
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const StorageRecord& record = tape.storages[s];
    Site site = record.site;
    while (!met.insert(site).second) site = Mix(site, 1);
    const auto [known, is_new] = storage_of_.try_emplace(site, static_cast<int32_t>(storages_.size()));
    numbers.push_back(known->second);
    if (is_new) {
      SiteInfo info;
      info.site = site;
      info.kind = record.kind;
      info.label = record.kind == StorageKind::kIntermediate ? labels[s] : tape.block->ParameterName(record.site);
      if (info.label.empty()) info.label = "input";
      storages_.push_back(std::move(info));
    }
    SiteInfo& info = storages_[known->second];
    larger |= !is_new && record.bytes > info.bytes;
    info.bytes = std::max(info.bytes, record.bytes);
    info.sum_bytes += record.bytes;
    if (own_ != 0) {
      samples_.back().resize(storages_.size(), 0);
      samples_.back()[known->second] = record.bytes;
    }
    if (record.consumed) consumed_bytes += record.bytes;
    info.must_save |= record.must_save;
    if (record.consumed && !info.consumed) {
      info.consumed = true;
      consumed_.push_back(known->second);
    }
  }
  ++recordings_;
  most_consumed_bytes_ = std::max(most_consumed_bytes_, consumed_bytes);
  return numbers;
}

bool MergedTape::Add(const Tape& tape) {
  std::vector<uint64_t> keys;
  keys.reserve(tape.ops.size());
  std::unordered_map<uint64_t, uint64_t> occurrences;
  for (size_t i = 0; i < tape.ops.size(); ++i) keys.push_back(KeyOf(tape, static_cast<int32_t>(i), occurrences));
  const std::optional<MergedOrder> order = MergeOrder(KeysOf(ops_), keys);
  if (!order) return false;
  bool larger = false;
  const std::vector<int32_t> numbers = AddStorages(tape, larger);
  CompareWithSent(tape, numbers);
  if (order->size > ops_.size()) {
    std::vector<Op> merged(order->size);
    for (size_t i = 0; i < ops_.size(); ++i) merged[order->base_at[i]] = std::move(ops_[i]);
    ops_ = std::move(merged);
  }
  const bool measured = tape.op_seconds.size() == tape.ops.size();
  // Where something was saved, what is alive anyway counts as planned.
  const bool forward_measured =
      !tape.ops.empty() && tape.forward_bytes.size() == tape.ops.size() && tape.saved_bytes == 0 && tape.moved_bytes == 0;
  const int64_t forward_peak = forward_measured ? *std::max_element(tape.forward_bytes.begin(), tape.forward_bytes.end()) : 0;
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    const OpRecord& record = tape.ops[i];
    Op& op = ops_[order->added_at[i]];
    if (op.key == 0) {
      op.key = keys[i];
      op.name = record.facts->name;
    }
    op.replayable &= record.replayable;
    for (uint32_t v = record.first_value; v < record.first_output; ++v) {
      if (tape.values[v].storage >= 0) AddIndex(op.reads, numbers[tape.values[v].storage]);
    }
    // Writes to what was there before the block are not the planner's concern.
    const auto add_write = [&](int32_t storage) {
      if (tape.storages[storage].kind == StorageKind::kIntermediate) AddIndex(op.writes, numbers[storage]);
    };
    for (uint32_t w = record.first_write; w < record.end_write; ++w) add_write(tape.writes[w]);
    for (uint32_t v = record.first_output; v < record.end_output; ++v) {
      const int32_t storage = tape.values[v].storage;
      if (storage >= 0 && tape.storages[storage].creator == static_cast<int32_t>(i)) add_write(storage);
    }
    if (forward_measured) {
      const int64_t slack = forward_peak - tape.forward_bytes[i];
      op.forward_slack_bytes = op.forward_slack_bytes < 0 ? slack : std::min(op.forward_slack_bytes, slack);
    }
    if (!measured || tape.op_seconds[i] < 0) continue;
    if (op.seconds.size() < kSamples) {
      op.seconds.push_back(tape.op_seconds[i]);
    } else {
      op.seconds[op.next_sample++ % kSamples] = tape.op_seconds[i];
    }
    op.workspace_bytes = std::max(op.workspace_bytes, tape.op_workspace[i]);
  }
  return larger;
}

// Between each value's mean and its most, at the point where what backward reads comes to the most that one recording had of it:
// values that grow together, as with longer sequences, are at their most together; where one grows at the cost of another, as the
// batches of experts do, they are at their means.
std::vector<int64_t> MergedTape::ExpectedBytes() const {
  double means = 0, most = 0;
  const auto mean = [this](const SiteInfo& storage) {
    return static_cast<double>(storage.sum_bytes) / static_cast<double>(std::max<int64_t>(recordings_, 1));
  };
  for (const int32_t s : consumed_) {
    means += mean(storages_[s]);
    most += static_cast<double>(storages_[s].bytes);
  }
  const double together =
      most > means ? std::clamp((static_cast<double>(most_consumed_bytes_) - means) / (most - means), 0.0, 1.0) : 1;
  std::vector<int64_t> expected;
  expected.reserve(storages_.size());
  for (const SiteInfo& storage : storages_) {
    const double size = mean(storage) + together * (static_cast<double>(storage.bytes) - mean(storage));
    expected.push_back(std::min(storage.bytes, static_cast<int64_t>(std::ceil(size))));
  }
  return expected;
}

std::vector<int64_t> MergedTape::SampledBytes(size_t storage) const {
  std::vector<int64_t> sizes;
  for (const std::vector<int64_t>& recording : samples_) sizes.push_back(storage < recording.size() ? recording[storage] : 0);
  return sizes;
}

bool MergedTape::wants_sending() const { return sent_.hash == 0 || strange_in_a_row_ >= kStrangeRecordings; }

bool MergedTape::outdated(const MarkSequence& marks) const {
  return sent_.hash != 0 && (AllBytes() != sent_.all_bytes || static_cast<int32_t>(storages_.size()) != sent_.storages ||
                             ops_.size() != sent_.ops.size() || KeysOf(marks.marks()) != sent_.events);
}

int64_t MergedTape::AllBytes() const {
  int64_t bytes = 0;
  for (const SiteInfo& storage : storages_) bytes += storage.bytes;
  return bytes;
}

void MergedTape::CompareWithSent(const Tape& tape, const std::vector<int32_t>& numbers) {
  if (sent_.hash == 0) return;
  int64_t all = 0, unknown = 0;
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    if (!tape.storages[s].consumed) continue;
    all += tape.storages[s].bytes;
    if (numbers[s] >= sent_.storages) unknown += tape.storages[s].bytes;
  }
  const int64_t larger = std::max<int64_t>(0, all - sent_.consumed_bytes);
  const bool strange = static_cast<double>(std::max(unknown, larger)) > kStrangeRatio * static_cast<double>(all);
  strange_in_a_row_ = strange ? strange_in_a_row_ + 1 : 0;
}

uint64_t MergedTape::Hash() const {
  uint64_t hash = own_;
  for (const SiteInfo& storage : storages_) {
    if (storage.kind == StorageKind::kIntermediate) hash += Mix(storage.site, storage.consumed ? 2 : 1);
  }
  return Mix(hash, ops_.size() + (revision_ << 32));
}

double MergedTape::MedianSeconds(const Op& op) {
  if (op.seconds.empty()) return -1;
  std::vector<float> sorted = op.seconds;
  std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
  return sorted[sorted.size() / 2];
}

tt_link_status MergedTape::Send(tt_link_status (*put_tape)(tt_link*, const tt_block_tape*), tt_link* link,
                                const MarkSequence& marks) {
  std::vector<tt_storage> storages;
  const std::vector<int64_t> expected = ExpectedBytes();
  std::vector<std::vector<int64_t>> samples;
  for (size_t s = 0; s < storages_.size(); ++s) {
    const SiteInfo& storage = storages_[s];
    tt_storage out = {};
    out.bytes = expected[s];
    samples.push_back(SampledBytes(s));
    out.sampled_bytes = samples.back().data();
    out.num_samples = samples.back().size();
    out.site = storage.site;
    out.label = storage.label.c_str();
    out.kind = storage.kind == StorageKind::kIntermediate ? TT_STORAGE_INTERMEDIATE
               : storage.kind == StorageKind::kParameter  ? TT_STORAGE_PARAMETER
                                                          : TT_STORAGE_BLOCK_INPUT;
    out.must_save = storage.kind == StorageKind::kIntermediate && storage.must_save;
    storages.push_back(out);
  }
  std::vector<tt_op> ops;
  ops.reserve(ops_.size());
  for (const Op& op : ops_) {
    tt_op out = {};
    const double seconds = MedianSeconds(op);
    out.name = op.name.c_str();
    out.cost_seconds = seconds < 0 ? kUnmeasuredSeconds : seconds;
    out.reads = Indices(op.reads);
    out.writes = Indices(op.writes);
    out.replay_workspace_bytes = op.workspace_bytes;
    out.replayable = op.replayable;
    ops.push_back(out);
  }
  const std::vector<MarkSequence::Mark>& given = marks.marks();
  const int64_t base_bytes = given.empty() ? 0 : given.front().start_bytes;
  std::vector<std::vector<int32_t>> reads(given.size()), releases(given.size());
  // In different steps a storage may go at different marks; it is there until the last of them.
  std::unordered_set<int32_t> released;
  for (size_t m = given.size(); m-- > 0;) {
    for (const uint64_t site : given[m].releases) {
      const auto found = storage_of_.find(site);
      if (found != storage_of_.end() && released.insert(found->second).second) releases[m].push_back(found->second);
    }
    for (const uint64_t site : given[m].reads) {
      const auto found = storage_of_.find(site);
      if (found == storage_of_.end()) continue;
      if (released.insert(found->second).second) releases[m].push_back(found->second);
      reads[m].push_back(found->second);
    }
  }
  std::vector<tt_backward_event> events;
  for (size_t m = 0; m < given.size(); ++m) {
    events.push_back({Indices(reads[m]), Indices(releases[m]), std::max<int64_t>(0, given[m].peak_bytes - base_bytes),
                      std::max<int64_t>(0, given[m].start_bytes - base_bytes)});
  }
  if (Hash() == sent_.hash) ++revision_;
  tt_block_tape tape = {};
  tape.name = name_.c_str();
  tape.structure_hash = Hash();
  tape.storages = storages.data();
  tape.num_storages = storages.size();
  tape.ops = ops.data();
  tape.num_ops = ops.size();
  tape.consumed = Indices(consumed_);
  const bool slack_known = std::any_of(ops_.begin(), ops_.end(), [](const Op& op) { return op.forward_slack_bytes >= 0; });
  std::vector<int64_t> slack;
  for (const Op& op : ops_) slack.push_back(std::max<int64_t>(0, op.forward_slack_bytes));
  tape.forward_slack_bytes = slack_known ? slack.data() : nullptr;
  tape.backward = events.data();
  tape.num_backward = events.size();
  const tt_link_status status = put_tape(link, &tape);
  if (status != TT_LINK_OK) return status;
  sent_ = {tape.structure_hash, most_consumed_bytes_, AllBytes(), static_cast<int32_t>(storages_.size()),
           KeysOf(ops_),        KeysOf(given)};
  strange_in_a_row_ = 0;
  return status;
}

std::vector<double> MergedTape::Costs() const {
  std::vector<double> costs(sent_.ops.size(), -1);
  size_t next = 0;  // the sent ops are a part of those known, in the same order
  for (const Op& op : ops_) {
    if (next < sent_.ops.size() && op.key == sent_.ops[next]) costs[next++] = MedianSeconds(op);
  }
  return costs;
}

std::vector<int64_t> MergedTape::Workspaces() const {
  std::vector<int64_t> bytes(sent_.ops.size(), 0);
  size_t next = 0;
  for (const Op& op : ops_) {
    if (next < sent_.ops.size() && op.key == sent_.ops[next]) bytes[next++] = op.workspace_bytes;
  }
  return bytes;
}

void MergedTape::EventBytes(const MarkSequence& marks, int64_t base_bytes, std::vector<int64_t>& peaks,
                            std::vector<int64_t>& starts) const {
  std::unordered_map<uint64_t, const MarkSequence::Mark*> known;
  for (const MarkSequence::Mark& mark : marks.marks()) known.emplace(mark.key, &mark);
  peaks.clear();
  starts.clear();
  for (const uint64_t event : sent_.events) {
    const auto found = known.find(event);
    if (found != known.end()) {
      peaks.push_back(std::max<int64_t>(0, found->second->peak_bytes - base_bytes));
      starts.push_back(std::max<int64_t>(0, found->second->start_bytes - base_bytes));
    } else {
      // This execution never had it; were it to come, it would stand on what was there before.
      peaks.push_back(peaks.empty() ? 0 : peaks.back());
      starts.push_back(starts.empty() ? 0 : starts.back());
    }
  }
}

std::string MergedTape::ToText(const std::string& block, const BlockActions* actions) const {
  std::ostringstream text;
  text << "block " << block << ", structure " << std::hex << Hash() << std::dec << ", " << ops_.size() << " ops\n";
  for (size_t s = 0; s < storages_.size(); ++s) {
    const SiteInfo& storage = storages_[s];
    if (storage.kind != StorageKind::kBlockInput || actions == nullptr || actions->move.count(storage.site) == 0) continue;
    PrintStorage(s, storage, "moved to host memory by the plan", text << "  ");
  }
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    text << "  " << i << " " << op.name << (op.replayable ? "" : " (never replayed)") << " reads";
    for (const int32_t s : op.reads) text << " %" << s;
    if (const double seconds = MedianSeconds(op); seconds >= 0) text << ", " << seconds * 1e6 << " us";
    text << "\n";
    for (const int32_t s : op.writes) PrintStorage(s, storages_[s], FateOf(storages_[s], actions), text << "      ");
  }
  return text.str();
}

}  // namespace tidetape::agent
