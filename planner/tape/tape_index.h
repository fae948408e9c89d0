// Who writes and who reads each version of each storage of a tape.
//
// A version counts the ops that wrote a storage; an op reads the version that its place in program order shows it. Only the last
// version can be saved: an earlier one exists only between the replays of its writer and of the next writer. An op that writes a
// storage that was written before may leave a part of the old content (a slice), so it depends on the previous writer whether it
// declares the read or not.
#ifndef TIDETAPE_PLANNER_TAPE_TAPE_INDEX_H_
#define TIDETAPE_PLANNER_TAPE_TAPE_INDEX_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/model/problem.h"

namespace tidetape::planner {

// Lists of lists in one piece of memory.
template <typename T>
class Rows {
 public:
  Rows() : offsets_(1, 0) {}
  void Add(const T& value) { values_.push_back(value); }
  void EndRow() { offsets_.push_back(static_cast<int32_t>(values_.size())); }
  std::span<const T> operator[](int32_t row) const {
    return {values_.data() + offsets_[row], static_cast<size_t>(offsets_[row + 1] - offsets_[row])};
  }

 private:
  std::vector<int32_t> offsets_;
  std::vector<T> values_;
};

// Why an op can never be replayed.
enum class ReplayBar : uint8_t {
  kNone,
  kMarked,               // Op::replayable is false
  kWritesOutside,        // writes a block input or a parameter, which a replay would write a second time
  kReadsOverwritten,     // reads a version of a block input, parameter or must-save storage that is gone
  kWritesMustSaveAgain,  // writes a must-save storage that has several writers, so that the replay would spoil the saved content
};

// What a replay of an op stands on: one intermediate storage.
struct OpInput {
  int32_t storage = 0;
  int32_t producer = -1;  // op that wrote the version; -1: came from outside
  bool last = false;      // the version is the last one, so that saving the storage serves the op
  bool declared = false;  // listed in Op::reads; otherwise the op merely overwrites it
};

// A flag for each of something. Bytes, because the planner reads them far more often than it copies them.
using Flags = std::vector<uint8_t>;

// Immutable; keeps a reference to the tape, which must outlive it and be valid (ValidateTape).
class TapeIndex {
 public:
  explicit TapeIndex(const BlockTape& tape);

  const BlockTape& tape() const { return *tape_; }
  bool intermediate(int32_t storage) const { return intermediate_[storage]; }
  bool consumed(int32_t storage) const { return consumed_[storage]; }  // false for parameters and block inputs
  int64_t bytes(int32_t storage) const { return bytes_[storage]; }
  // Intermediate storages that every plan saves, ascending.
  const std::vector<int32_t>& must_save() const { return must_save_; }
  // Bytes that saving the storage costs.
  int64_t save_bytes(int32_t storage) const { return save_bytes_[storage]; }
  double cost_seconds(int32_t op) const { return cost_seconds_[op]; }
  int64_t workspace_bytes(int32_t op) const { return workspace_bytes_[op]; }

  // By op, each storage once. Parameters and block inputs do not appear: they are always there.
  std::span<const OpInput> inputs(int32_t op) const { return inputs_[op]; }
  std::span<const int32_t> outputs(int32_t op) const { return outputs_[op]; }
  // Earlier ops that read a version that this op overwrites: they must have run when both are replayed.
  std::span<const int32_t> readers_before(int32_t op) const { return readers_before_[op]; }
  ReplayBar bar(int32_t op) const { return bars_[op]; }

  // By storage: ops that write it, in program order.
  std::span<const int32_t> writers(int32_t storage) const { return writers_[storage]; }
  // Ops that read or write it, in program order, each once; none for parameters and block inputs.
  std::span<const int32_t> touching(int32_t storage) const { return touching_[storage]; }
  // -1 where no op writes it.
  int32_t last_writer(int32_t storage) const { return writers_[storage].empty() ? -1 : writers_[storage].back(); }
  bool rewritten(int32_t storage) const { return writers_[storage].size() > 1; }

  // The bar in words, as in "is marked as not replayable".
  static std::string BarText(ReplayBar bar);

 private:
  ReplayBar FindBar(int32_t op) const;

  const BlockTape* tape_;
  // Copies of what plans are evaluated from, without the names between them.
  Flags intermediate_;
  Flags consumed_;
  std::vector<int32_t> must_save_;
  std::vector<int64_t> bytes_;
  std::vector<int64_t> save_bytes_;
  std::vector<double> cost_seconds_;
  std::vector<int64_t> workspace_bytes_;
  Rows<int32_t> writers_;
  Rows<int32_t> touching_;
  Rows<OpInput> inputs_;
  Rows<int32_t> outputs_;
  Rows<int32_t> readers_before_;
  std::vector<ReplayBar> bars_;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TAPE_TAPE_INDEX_H_
