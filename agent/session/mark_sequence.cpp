#include "agent/session/mark_sequence.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "agent/session/merge_order.h"
#include "agent/tape/site.h"

namespace tidetape::agent {
namespace {

std::vector<uint64_t> Keys(const std::vector<MarkSequence::Mark>& marks) {
  std::vector<uint64_t> keys;
  keys.reserve(marks.size());
  for (const MarkSequence::Mark& mark : marks) keys.push_back(mark.key);
  return keys;
}

void AddMissing(std::vector<uint64_t>& to, const std::vector<uint64_t>& from) {
  for (const uint64_t site : from) {
    if (std::find(to.begin(), to.end(), site) == to.end()) to.push_back(site);
  }
}

}  // namespace

int64_t MarkSequence::Add(const std::vector<BackwardMark>& given) {
  std::vector<Mark> added;
  added.reserve(given.size());
  std::unordered_map<uint64_t, uint64_t> occurrences;
  uint64_t released = 0;
  for (const BackwardMark& mark : given) {
    const uint64_t begun_by = mark.reads.empty() ? Mix(2, released) : Mix(1, mark.reads.front());
    added.push_back({Mix(begun_by, occurrences[begun_by]++), mark.reads, mark.releases, mark.peak_bytes, mark.start_bytes});
    if (!mark.releases.empty()) released = mark.releases.back();
  }
  return Merge(added);
}

int64_t MarkSequence::Merge(const std::vector<Mark>& added) {
  const std::optional<MergedOrder> order = MergeOrder(Keys(marks_), Keys(added));
  if (!order) return 0;
  std::vector<Mark> merged(order->size);
  for (size_t i = 0; i < marks_.size(); ++i) merged[order->base_at[i]] = std::move(marks_[i]);
  const bool first = marks_.empty();
  int64_t spread = 0;
  for (size_t i = 0; i < added.size(); ++i) {
    Mark& mark = merged[order->added_at[i]];
    if (mark.key == 0) {
      mark = added[i];
      continue;
    }
    if (!first) spread = std::max(spread, std::abs(mark.peak_bytes - added[i].peak_bytes));
    AddMissing(mark.reads, added[i].reads);
    AddMissing(mark.releases, added[i].releases);
    mark.peak_bytes = std::max(mark.peak_bytes, added[i].peak_bytes);
    mark.start_bytes = std::max(mark.start_bytes, added[i].start_bytes);
  }
  marks_ = std::move(merged);
  return spread;
}

}  // namespace tidetape::agent
