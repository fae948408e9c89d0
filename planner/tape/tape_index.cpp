#include "planner/tape/tape_index.h"

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

// Which storages an op has named already, for one op after the other.
class SeenByOp {
 public:
  explicit SeenByOp(size_t storages) : op_of_(storages, -1) {}
  bool Has(int32_t storage, int32_t op) const { return op_of_[storage] == op; }
  bool AddFirst(int32_t storage, int32_t op) {
    if (Has(storage, op)) return false;
    op_of_[storage] = op;
    return true;
  }

 private:
  std::vector<int32_t> op_of_;
};

}  // namespace

TapeIndex::TapeIndex(const BlockTape& tape) : tape_(&tape), consumed_(tape.storages.size(), false) {
  const int32_t ops = static_cast<int32_t>(tape.ops.size());
  const int32_t storages = static_cast<int32_t>(tape.storages.size());
  for (size_t s = 0; s < tape.storages.size(); ++s) {
    const Storage& storage = tape.storages[s];
    if (storage.kind == StorageKind::kIntermediate && storage.must_save) must_save_.push_back(static_cast<int32_t>(s));
    intermediate_.push_back(storage.kind == StorageKind::kIntermediate);
    bytes_.push_back(storage.bytes);
    save_bytes_.push_back(storage.held_anyway ? 0 : storage.bytes);
  }
  for (const Op& op : tape.ops) {
    cost_seconds_.push_back(op.cost_seconds);
    workspace_bytes_.push_back(op.replay_workspace_bytes);
  }
  for (int32_t s : tape.consumed) consumed_[s] = intermediate(s);

  std::vector<std::pair<int32_t, int32_t>> writes;  // (storage, op)
  SeenByOp listed(storages);
  for (int32_t i = 0; i < ops; ++i) {
    for (int32_t s : tape.ops[i].writes) {
      if (listed.AddFirst(s, i)) writes.emplace_back(s, i);
    }
  }
  writers_ = GroupByRow(storages, writes);

  std::vector<std::pair<int32_t, int32_t>> touches;  // (storage, op)
  SeenByOp touched(storages);
  for (int32_t i = 0; i < ops; ++i) {
    for (const std::vector<int32_t>* list : {&tape.ops[i].reads, &tape.ops[i].writes}) {
      for (int32_t s : *list) {
        if (intermediate(s) && touched.AddFirst(s, i)) touches.emplace_back(s, i);
      }
    }
  }
  touching_ = GroupByRow(storages, touches);

  std::vector<int32_t> writer(storages, -1);            // the last writer so far
  std::vector<std::vector<int32_t>> readers(storages);  // of the version so far
  SeenByOp read(storages), written(storages);
  for (int32_t i = 0; i < ops; ++i) {
    for (int32_t s : tape.ops[i].reads) {
      if (!intermediate(s) || !read.AddFirst(s, i)) continue;
      const bool last = writer[s] == last_writer(s);
      inputs_.Add({.storage = s, .producer = writer[s], .last = last, .declared = true});
      if (!last) readers[s].push_back(i);
    }
    for (int32_t s : tape.ops[i].writes) {
      if (!intermediate(s) || !written.AddFirst(s, i)) continue;
      if (writer[s] >= 0 && !read.Has(s, i)) inputs_.Add({.storage = s, .producer = writer[s]});
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
