// What was learned of a block over many recordings: one tape that has every op that ever ran, with a size for each value and what
// replaying each op costs.
//
// The op sequence of a block may change at every step (experts without tokens, branches). Recordings are merged by site: an op that
// was absent is put after its predecessor, one that is known is recognised.
#ifndef TIDETAPE_AGENT_SESSION_MERGED_TAPE_H_
#define TIDETAPE_AGENT_SESSION_MERGED_TAPE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/link/tt_link.h"
#include "agent/session/mark_sequence.h"
#include "agent/tape/block.h"
#include "agent/tape/tape.h"

namespace tidetape::agent {

// One storage of a merged tape, for people and for plans made by hand.
struct SiteInfo {
  Site site = 0;
  std::string label;
  int64_t bytes = 0;      // the most seen
  int64_t sum_bytes = 0;  // over all recordings; one without the value counts as 0
  StorageKind kind = StorageKind::kIntermediate;
  bool must_save = false;
  bool consumed = false;
};

// Not thread-safe.
class MergedTape {
 public:
  // `own`: of a block whose sizes depend on values, what tells the tape from those of blocks with equal ops; 0 for other blocks,
  // which share one.
  MergedTape(std::string name, uint64_t own) : name_(std::move(name)), own_(own) {}

  // Takes in one recording with the costs that its replay measured. A recording whose ops come in another order than those known
  // is left out. Returns whether a value that was known is larger than ever before.
  bool Add(const Tape& tape);

  // The planner does not know this tape, or recordings in a row had so much on them that it does not know.
  bool wants_sending() const;

  // More is known, or larger values, than when it was sent.
  bool outdated(const MarkSequence& marks) const;

  // Hands the tape with `marks` as its backward to the link; sites that the tape does not have are left out. From then on
  // `sent_hash`, Costs and EventBytes speak of the tape as it is now.
  tt_link_status Send(tt_link_status (*put_tape)(tt_link*, const tt_block_tape*), tt_link* link, const MarkSequence& marks);

  uint64_t sent_hash() const { return sent_.hash; }  // 0: never sent

  // Median replay seconds of each op that was sent; negative: never replayed.
  std::vector<double> Costs() const;
  std::vector<int64_t> Workspaces() const;

  // (peak, start) bytes above `base_bytes` at each backward event that was sent, for an execution with these marks.
  void EventBytes(const MarkSequence& marks, int64_t base_bytes, std::vector<int64_t>& peaks, std::vector<int64_t>& starts) const;

  const std::vector<SiteInfo>& sites() const { return storages_; }

  // For people, a line an op: what it makes, what that costs to replay, and what happens to it under `actions` (null: nothing is
  // saved) and why.
  std::string ToText(const std::string& block, const BlockActions* actions) const;

 private:
  struct Op {
    uint64_t key = 0;
    std::string name;
    std::vector<int32_t> reads;  // storages, ascending
    std::vector<int32_t> writes;
    bool replayable = true;
    std::vector<float> seconds;  // the newest samples
    size_t next_sample = 0;
    int64_t workspace_bytes = 0;
    int64_t forward_slack_bytes = -1;  // see tidetape.v1.BlockTape; negative: not measured
  };
  // What the planner was told.
  struct Sent {
    uint64_t hash = 0;
    int64_t consumed_bytes = 0;
    int64_t all_bytes = 0;
    int32_t storages = 0;  // the first so many of storages_
    std::vector<uint64_t> ops;
    std::vector<uint64_t> events;
  };

  // The storages of `tape` as numbers of this one's.
  std::vector<int32_t> AddStorages(const Tape& tape, bool& larger);
  void CompareWithSent(const Tape& tape, const std::vector<int32_t>& numbers);
  static double MedianSeconds(const Op& op);
  // The sizes that the planner is told, by storage.
  std::vector<int64_t> ExpectedBytes() const;
  // Of the recordings that are kept, oldest first; none where sizes do not depend on values.
  std::vector<int64_t> SampledBytes(size_t storage) const;
  int64_t AllBytes() const;
  uint64_t Hash() const;

  const std::string name_;
  const uint64_t own_;
  std::vector<SiteInfo> storages_;
  std::unordered_map<Site, int32_t> storage_of_;
  std::vector<Op> ops_;
  std::vector<int32_t> consumed_;  // in order of packing
  int64_t recordings_ = 0;
  std::deque<std::vector<int64_t>> samples_;  // of the newest recordings, by storage; those that came later are missing
  int64_t most_consumed_bytes_ = 0;           // of one recording
  Sent sent_;
  uint64_t revision_ = 0;         // of the sizes, under one set of sites
  int32_t strange_in_a_row_ = 0;  // recordings that the tape as it was sent describes badly
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_MERGED_TAPE_H_
