#include "planner/tape_index.h"

#include <algorithm>

namespace tidetape::planner {
namespace {

// Rows from (row, value) pairs, stable within a row.
Rows<int32_t> GroupByRow(size_t rows, const std::vector<std::pair<int32_t, int32_t>>& pairs) {
  std::vector<int32_t> next(rows + 1, 0);
  for (const auto& [row, value] : pairs) ++next[row + 1];
  for (size_t r = 0; r < rows; ++r) next[r + 1] += next[r];
  std::vector<int32_t> values(pairs.size());
  std::vector<int32_t> end(next.begin() + 1, next.end());
  for (const auto& [row, value] : pairs) values[next[row]++] = value;
  Rows<int32_t> result;
  int32_t at = 0;
  for (size_t r = 0; r < rows; ++r) {
    for (; at < end[r]; ++at) result.Add(values[at]);
    result.EndRow();
  }
  return result;
}

bool FirstAt(const std::vector<int32_t>& list, size_t at) {
  return std::find(list.begin(), list.begin() + at, list[at]) == list.begin() + at;
}

bool Contains(const std::vector<int32_t>& list, int32_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

}  // namespace

TapeIndex::TapeIndex(const BlockTape& tape) : tape_(&tape), consumed_(tape.storages.size(), false) {
  const int32_t ops = static_cast<int32_t>(tape.ops.size());
  const int32_t storages = static_cast<int32_t>(tape.storages.size());
  for (int32_t s : tape.consumed) consumed_[s] = intermediate(s);

  std::vector<std::pair<int32_t, int32_t>> writes;  // (storage, op)
  for (int32_t i = 0; i < ops; ++i) {
    const std::vector<int32_t>& list = tape.ops[i].writes;
    for (size_t w = 0; w < list.size(); ++w) {
      if (FirstAt(list, w)) writes.emplace_back(list[w], i);
    }
  }
  writers_ = GroupByRow(storages, writes);

  std::vector<std::pair<int32_t, int32_t>> touches;  // (storage, op)
  for (int32_t i = 0; i < ops; ++i) {
    const Op& op = tape.ops[i];
    for (size_t r = 0; r < op.reads.size(); ++r) {
      if (intermediate(op.reads[r]) && FirstAt(op.reads, r)) touches.emplace_back(op.reads[r], i);
    }
    for (size_t w = 0; w < op.writes.size(); ++w) {
      if (intermediate(op.writes[w]) && FirstAt(op.writes, w) && !Contains(op.reads, op.writes[w]))
        touches.emplace_back(op.writes[w], i);
    }
  }
  touching_ = GroupByRow(storages, touches);

  std::vector<int32_t> writer(storages, -1);            // the last writer so far
  std::vector<std::vector<int32_t>> readers(storages);  // of the version so far
  for (int32_t i = 0; i < ops; ++i) {
    const Op& op = tape.ops[i];
    for (size_t r = 0; r < op.reads.size(); ++r) {
      const int32_t s = op.reads[r];
      if (!intermediate(s) || !FirstAt(op.reads, r)) continue;
      const bool last = writer[s] == last_writer(s);
      inputs_.Add({.storage = s, .producer = writer[s], .last = last, .declared = true});
      if (!last) readers[s].push_back(i);
    }
    for (size_t w = 0; w < op.writes.size(); ++w) {
      const int32_t s = op.writes[w];
      if (!intermediate(s) || !FirstAt(op.writes, w)) continue;
      if (writer[s] >= 0 && !Contains(op.reads, s)) inputs_.Add({.storage = s, .producer = writer[s]});
      for (int32_t reader : readers[s]) {
        if (reader != i) readers_before_.Add(reader);
      }
      readers[s].clear();
      outputs_.Add(s);
      writer[s] = i;
    }
    inputs_.EndRow();
    outputs_.EndRow();
    readers_before_.EndRow();
  }
  bars_.reserve(ops);
  for (int32_t i = 0; i < ops; ++i) bars_.push_back(FindBar(i));
}

ReplayBar TapeIndex::FindBar(int32_t op) const {
  if (!tape_->ops[op].replayable) return ReplayBar::kMarked;
  for (int32_t s : tape_->ops[op].writes) {
    if (!intermediate(s)) return ReplayBar::kWritesOutside;
    if (tape_->storages[s].must_save && rewritten(s)) return ReplayBar::kWritesMustSaveAgain;
  }
  for (int32_t s : tape_->ops[op].reads) {
    if (!intermediate(s) && last_writer(s) > op) return ReplayBar::kReadsOverwritten;
  }
  for (const OpInput& input : inputs(op)) {
    if (tape_->storages[input.storage].must_save && !input.last) return ReplayBar::kReadsOverwritten;
  }
  return ReplayBar::kNone;
}

std::string TapeIndex::BarText(ReplayBar bar) {
  switch (bar) {
    case ReplayBar::kNone:
      return "can be replayed";
    case ReplayBar::kMarked:
      return "is marked as not replayable";
    case ReplayBar::kWritesOutside:
      return "writes a block input or a parameter and so cannot be replayed";
    case ReplayBar::kReadsOverwritten:
      return "reads a content that a later op overwrites and so cannot be replayed";
    case ReplayBar::kWritesMustSaveAgain:
      return "writes a must_save storage that has several writers and so cannot be replayed";
  }
  return "";
}

}  // namespace tidetape::planner
