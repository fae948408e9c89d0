#include "collectives/schedule.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/stable_hash.h"

namespace tidetape::collectives {
namespace {

std::string PlaceText(const Place& place) {
  switch (place.buffer) {
    case Buffer::kArena:
      return absl::StrCat("arena+", place.offset);
    case Buffer::kGradient:
      return absl::StrCat("gradient ", place.index, "+", place.offset);
    case Buffer::kOutput:
      return absl::StrCat("output ", place.index, "+", place.offset);
  }
  return "nowhere";
}

void AddText(StableHash& hash, const std::string& text) {
  hash.Add(static_cast<int64_t>(text.size()));
  hash.Add(text);
}

void AddPlace(StableHash& hash, const Place& place) {
  hash.Add(static_cast<int64_t>(place.buffer));
  hash.Add(place.index);
  hash.Add(place.offset);
}

}  // namespace

uint64_t Schedule::hash() const {
  StableHash hash;
  AddText(hash, collective);
  AddText(hash, unit);
  hash.Add(slot);
  hash.Add(rank);
  hash.Add(static_cast<int64_t>(peer_sets.size()));
  for (const auto& peers : peer_sets) {
    hash.Add(static_cast<int64_t>(peers.size()));
    for (int32_t peer : peers) hash.Add(peer);
  }
  hash.Add(static_cast<int64_t>(source_sets.size()));
  for (const auto& places : source_sets) {
    hash.Add(static_cast<int64_t>(places.size()));
    for (const Place& place : places) AddPlace(hash, place);
  }
  hash.Add(static_cast<int64_t>(steps.size()));
  for (const Step& step : steps) {
    hash.Add(static_cast<int64_t>(step.kind));
    hash.Add(static_cast<int64_t>(step.dtype));
    hash.Add(static_cast<int64_t>(step.paced));
    hash.Add(step.peer);
    hash.Add(step.signal);
    hash.Add(step.count);
    hash.Add(step.slot);
    hash.Add(step.sources);
    hash.Add(step.bytes);
    AddPlace(hash, step.source);
    AddPlace(hash, step.destination);
  }
  for (const Phase& phase : phases) {
    AddText(hash, phase.name);
    hash.Add(phase.first_step);
  }
  int64_t factor_bits = 0;
  std::memcpy(&factor_bits, &factor, sizeof factor_bits);
  hash.Add(factor_bits);
  hash.Add(puts_in_flight);
  hash.Add(absl::ToInt64Nanoseconds(gap));
  return hash.value();
}

const char* StepName(StepKind kind) {
  switch (kind) {
    case StepKind::kPut:
      return "put";
    case StepKind::kMulticast:
      return "multicast";
    case StepKind::kSignal:
      return "signal";
    case StepKind::kWait:
      return "wait";
    case StepKind::kFlush:
      return "flush";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kStore:
      return "store";
    case StepKind::kAdd:
      return "add";
    case StepKind::kSum:
      return "sum";
    case StepKind::kScale:
      return "scale";
    case StepKind::kUse:
      return "use";
  }
  return "unknown";
}

std::string StepText(const Schedule& schedule, int32_t index) {
  const Step& step = schedule.steps[index];
  std::string text = absl::StrCat("step ", index, ": ", StepName(step.kind));
  const std::string slot = step.slot < 0 ? "" : absl::StrCat(", slot ", step.slot);
  switch (step.kind) {
    case StepKind::kPut:
      return absl::StrCat(text, " ", step.bytes, " bytes from ", PlaceText(step.source), " to rank ", step.peer, " at ",
                          step.destination.offset, ", signal ", step.signal, slot, step.paced ? ", paced" : "");
    case StepKind::kMulticast:
      return absl::StrCat(text, " ", step.bytes, " bytes from ", PlaceText(step.source), " to ranks ",
                          absl::StrJoin(schedule.peer_sets[step.peer], " "), " at ", step.destination.offset, ", signal ",
                          step.signal);
    case StepKind::kSignal:
      return absl::StrCat(text, " ", step.signal, " to rank ", step.peer, slot);
    case StepKind::kWait:
      return absl::StrCat(text, " for ", step.count, " of signal ", step.signal, " from rank ", step.peer, slot);
    case StepKind::kFlush:
      return text;
    case StepKind::kSum: {
      absl::StrAppend(&text, " ", step.bytes, " bytes of ", DTypeName(step.dtype), " each from");
      for (const Place& place : schedule.source_sets[step.sources]) absl::StrAppend(&text, " ", PlaceText(place));
      return absl::StrCat(text, " to ", PlaceText(step.destination), slot);
    }
    case StepKind::kUse:
      return absl::StrCat(text, " ", step.bytes, " bytes at ", PlaceText(step.source));
    default:
      return absl::StrCat(text, " ", step.bytes, " bytes of ", DTypeName(step.dtype), " from ", PlaceText(step.source), " to ",
                          PlaceText(step.destination), slot);
  }
}

std::string ScheduleText(const Schedule& schedule) {
  std::string text = absl::StrCat(schedule.collective, " of '", schedule.unit, "' on rank ", schedule.rank, ", hash ",
                                  HashText(schedule.hash()), "\n");
  for (size_t p = 0; p < schedule.phases.size(); ++p) {
    absl::StrAppend(&text, schedule.phases[p].name, ":\n");
    for (int32_t step = schedule.begin(p); step < schedule.end(p); ++step)
      absl::StrAppend(&text, "  ", StepText(schedule, step), "\n");
  }
  return text;
}

}  // namespace tidetape::collectives
