#include "collectives/verifier/memory_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

// Whether `second`, so many bytes behind the start of `first`, is what goes on there.
bool GoesOn(const Content& first, int64_t bytes, const Content& second) {
  if (first.value == kUndefined || second.value == kUndefined) return first.value == second.value;
  return first.From(bytes) == second;
}

}  // namespace

std::string PlaceText(const BufferKey& key, int64_t offset) {
  switch (key.buffer) {
    case Buffer::kArena:
      return absl::StrCat("byte ", offset, " of rank ", key.rank, "'s arena");
    case Buffer::kGradient:
      return absl::StrCat("byte ", offset, " of rank ", key.rank, "'s gradient of parameter ", key.index);
    case Buffer::kOutput:
      return absl::StrCat("byte ", offset, " of rank ", key.rank, "'s gradient shard of parameter ", key.index);
  }
  return "nowhere";
}

void MemoryModel::Add(const BufferKey& key, int64_t bytes, const Content& content) {
  Memory& memory = memories_[key];
  memory.bytes = bytes;
  if (bytes > 0) memory.segments[0].content = content;
}

std::string MemoryModel::Text(const Event& event) const {
  std::string text = EntryText(event.rank, programs_[event.rank][event.entry]);
  if (event.effect < 0) return text;
  return absl::StrCat("the transfer to rank ", order_.effects()[event.effect].receiver, " by ", text);
}

absl::Status MemoryModel::Cut(const Event& by, const BufferKey& key, int64_t offset, int64_t bytes, Memory** memory) {
  const auto found = memories_.find(key);
  if (found == memories_.end() || bytes < 0 || offset < 0 || offset + bytes > found->second.bytes) {
    return absl::FailedPreconditionError(absl::StrCat("out of bounds: ", Text(by), " touches ", bytes, " bytes from ",
                                                      PlaceText(key, offset), ", which has ",
                                                      found == memories_.end() ? 0 : found->second.bytes));
  }
  *memory = &found->second;
  auto& segments = found->second.segments;
  for (int64_t at : {offset, offset + bytes}) {
    if (at == found->second.bytes) continue;
    const auto inside = std::prev(segments.upper_bound(at));
    if (inside->first == at) continue;
    Segment rest = inside->second;
    rest.content = rest.content.From(at - inside->first);
    segments.emplace_hint(std::next(inside), at, std::move(rest));
  }
  return absl::OkStatus();
}

absl::Status MemoryModel::CheckAfter(const std::vector<Event>& earlier, const Event& by, bool earlier_writes, bool writes,
                                     const BufferKey& key, int64_t offset) const {
  for (const Event& event : earlier) {
    if (event == by || order_.Before(event, by)) continue;
    return absl::FailedPreconditionError(absl::StrCat("race: ", Text(by), " ", writes ? "writes" : "reads", " ",
                                                      PlaceText(key, offset), ", and nothing orders this after ", Text(event),
                                                      ", which ", earlier_writes ? "writes" : "reads", " it"));
  }
  return absl::OkStatus();
}

absl::Status MemoryModel::Read(const Event& by, const BufferKey& key, int64_t offset, int64_t bytes, std::vector<Part>* parts) {
  parts->clear();
  if (bytes == 0) return absl::OkStatus();
  Memory* memory = nullptr;
  if (absl::Status status = Cut(by, key, offset, bytes, &memory); !status.ok()) return status;
  for (auto at = memory->segments.find(offset); at != memory->segments.end() && at->first < offset + bytes; ++at) {
    Segment& segment = at->second;
    if (absl::Status status = CheckAfter(segment.write, by, true, false, key, at->first); !status.ok()) return status;
    // A read that is before this one says nothing new to a later write.
    std::erase_if(segment.reads, [&](const Event& read) { return order_.Before(read, by); });
    segment.reads.push_back(by);
    const auto next = std::next(at);
    const int64_t end = next == memory->segments.end() ? memory->bytes : next->first;
    const bool goes_on = !parts->empty() && GoesOn(parts->back().content, at->first - parts->back().offset, segment.content);
    if (goes_on) {
      parts->back().bytes = end - parts->back().offset;
    } else {
      parts->push_back({at->first, end - at->first, segment.content});
    }
  }
  return absl::OkStatus();
}

absl::Status MemoryModel::Write(const Event& by, const BufferKey& key, int64_t offset, int64_t bytes,
                                const std::function<Content(const Part&)>& content_at) {
  if (bytes == 0) return absl::OkStatus();
  Memory* memory = nullptr;
  if (absl::Status status = Cut(by, key, offset, bytes, &memory); !status.ok()) return status;
  for (auto at = memory->segments.find(offset); at != memory->segments.end() && at->first < offset + bytes; ++at) {
    Segment& segment = at->second;
    if (absl::Status status = CheckAfter(segment.write, by, true, true, key, at->first); !status.ok()) return status;
    if (absl::Status status = CheckAfter(segment.reads, by, false, true, key, at->first); !status.ok()) return status;
    const auto next = std::next(at);
    const int64_t end = next == memory->segments.end() ? memory->bytes : next->first;
    segment.content = content_at({at->first, end - at->first, segment.content});
    segment.write = {by};
    segment.reads.clear();
  }
  // Where old borders have lost their meaning.
  for (auto at = std::next(memory->segments.find(offset)); at != memory->segments.end() && at->first < offset + bytes;) {
    const auto before = std::prev(at);
    at = GoesOn(before->second.content, at->first - before->first, at->second.content) ? memory->segments.erase(at) : std::next(at);
  }
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
