#include "collectives/verifier/schedule_verifier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/verifier/contents.h"
#include "collectives/verifier/happens_before.h"
#include "collectives/verifier/limits.h"
#include "collectives/verifier/memory_model.h"
#include "collectives/verifier/program.h"

namespace tidetape::collectives {
namespace {

constexpr int64_t kSumBytes = 4;

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

// Where in the run's lists the rank is; -1 where it takes no part.
int32_t PositionOf(const CollectiveRun& run, int32_t rank) {
  for (size_t i = 0; i < run.schedules.size(); ++i) {
    if (run.schedules[i].rank == rank) return static_cast<int32_t>(i);
  }
  return -1;
}

int32_t LastRowsPhase(const Schedule& schedule) {
  for (int32_t phase = static_cast<int32_t>(schedule.phases.size()) - 1; phase >= 0; --phase) {
    if (schedule.phases[phase].name == "rows") return phase;
  }
  return -1;
}

// The steps of a part, with the training's actions around them.
void AddPart(const CollectiveRun& run, int32_t rank, const ProgramPart& part, std::vector<ProgramEntry>& program) {
  const Schedule& schedule = run.schedules[PositionOf(run, rank)];
  const auto training = [&](TrainingAction action) { program.push_back({action, part.run, &schedule, -1}); };
  const bool gather = run.kind == CollectiveKind::kAllGather;
  if (part.use) return training(TrainingAction::kUseParameters);
  if (gather && part.phase + 1 == static_cast<int32_t>(schedule.phases.size())) training(TrainingAction::kFillShard);
  for (int32_t step = schedule.begin(part.phase); step < schedule.end(part.phase); ++step) {
    program.push_back({TrainingAction::kNone, part.run, &schedule, step});
  }
  if (!gather && part.phase == LastRowsPhase(schedule)) training(TrainingAction::kFreeGradients);
  if (part.phase + 1 < static_cast<int32_t>(schedule.phases.size())) return;
  training(gather ? TrainingAction::kUseParameters : TrainingAction::kReadOutputs);
}

// Runs the programs in an order that is allowed, on memory that knows what it holds. HappensBefore makes the outcome that of every
// other allowed order.
class Interpreter {
 public:
  Interpreter(const Layout& layout, const std::vector<CollectiveRun>& runs, const Programs& programs, const HappensBefore& order)
      : layout_(layout), runs_(runs), programs_(programs), order_(order), memory_(programs, order) {
    for (int32_t rank = 0; rank < static_cast<int32_t>(programs.size()); ++rank) memory_.Add({rank}, layout.arena_bytes(), {});
    const int64_t shared_bytes = layout.shared_region().bytes;
    for (int32_t rank = 0; shared_bytes > 0 && rank < static_cast<int32_t>(programs.size()); ++rank) {
      if (ArenaKey(rank, 0).rank == rank) memory_.Add(ArenaKey(rank, 0), shared_bytes, {});
    }
    for (int32_t r = 0; r < static_cast<int32_t>(runs.size()); ++r) AddBuffers(r);
  }

  absl::Status Interpret() {
    for (const Event& event : order_.order()) {
      const ProgramEntry& entry = programs_[event.rank][event.entry];
      absl::Status status;
      if (event.effect >= 0) {
        status = Transfer(event, entry, order_.effects()[event.effect].receiver, entry.get());
      } else if (entry.action != TrainingAction::kNone) {
        status = Train(event, entry);
      } else {
        status = Compute(event, entry, entry.get());
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  void AddBuffers(int32_t r) {
    const CollectiveRun& run = runs_[r];
    const UnitPlace& unit = layout_.units()[run.unit];
    for (size_t i = 0; i < run.schedules.size(); ++i) {
      ranks_.resize(runs_.size());
      ranks_[r].push_back(run.schedules[i].rank);
      if (run.kind == CollectiveKind::kAllGather) continue;
      for (size_t p = 0; p < unit.parameters.size(); ++p) {
        const Parameter& parameter = layout_.spec().units[run.unit].parameters[p];
        if (parameter.frozen || unit.parameters[p].storage_of != static_cast<int32_t>(p)) continue;
        const ShardGeometry& geometry = unit.parameters[p].geometry;
        const DType dtype = run.gradient_dtype.value_or(parameter.gradient_dtype);
        const int32_t rank = run.schedules[i].rank, index = static_cast<int32_t>(p);
        memory_.Add({rank, Buffer::kGradient, r, index}, geometry.elements() * DTypeBytes(dtype),
                    {values_.Gradient(r, index, rank), dtype, 0});
        memory_.Add({rank, Buffer::kOutput, r, index}, geometry.shard_elements(run.groups[i].self) * kSumBytes, {});
      }
    }
    std::sort(ranks_[r].begin(), ranks_[r].end());
  }

  // The memory behind a place of a rank's arena. What a host shares belongs to its first rank, as a buffer apart (run 1).
  BufferKey ArenaKey(int32_t rank, int64_t offset) const {
    if (offset >= layout_.shared_region().bytes) return {rank};
    return {rank / layout_.spec().options.host_ranks * layout_.spec().options.host_ranks, Buffer::kArena, 1, 0};
  }

  BufferKey Key(int32_t rank, const ProgramEntry& entry, const Place& place) const {
    if (place.buffer == Buffer::kArena) return ArenaKey(rank, place.offset);
    return {rank, place.buffer, entry.run, place.index};
  }

  std::string Text(const Event& event) const { return EntryText(event.rank, programs_[event.rank][event.entry]); }

  // Moves bytes as they are.
  absl::Status Transfer(const Event& event, const ProgramEntry& entry, int32_t receiver, const Step& step) {
    const BufferKey from = Key(event.rank, entry, step.source), to = Key(receiver, entry, step.destination);
    std::vector<Part> parts;
    if (absl::Status status = memory_.Read(event, from, step.source.offset, step.bytes, &parts); !status.ok()) return status;
    const bool same_memory = from == to && step.source.offset == step.destination.offset;
    for (const Part& part : parts) {
      if (part.content.value == kUndefined) {
        return Broken("reads bytes that nobody wrote: ", PlaceText(from, part.offset), ", by ", Text(event));
      }
      if (same_memory) continue;  // nothing is written
      const int64_t begin = step.destination.offset + part.offset - step.source.offset;
      if (absl::Status status = CheckPlace(entry, part.content, begin, event); !status.ok()) return status;
      bool twice = false;
      const auto moved = [&](const Part& old) {
        const Content content = part.content.From(old.offset - begin);
        twice |= runs_[entry.run].kind == CollectiveKind::kAllGather && old.content == content;
        return content;
      };
      if (absl::Status status = memory_.Write(event, to, begin, part.bytes, moved); !status.ok()) return status;
      if (twice) return Broken("arrives twice: ", PlaceText(to, begin), ", the second time by ", Text(event));
    }
    return absl::OkStatus();
  }

  // A gather's bytes go nowhere but to their own place, so that padding and other parameters stay as they are.
  absl::Status CheckPlace(const ProgramEntry& entry, const Content& content, int64_t offset, const Event& event) {
    const CollectiveRun& run = runs_[entry.run];
    if (run.kind != CollectiveKind::kAllGather) return absl::OkStatus();
    const auto& places = layout_.units()[run.unit].parameters;
    for (size_t p = 0; p < places.size(); ++p) {
      if (content.value == values_.Parameter(entry.run, p) && offset == places[p].offset + content.base) return absl::OkStatus();
    }
    return Broken("lands in the wrong place: byte ", content.base, " of ", values_.Text(content.value), " at byte ", offset,
                  " of the arena, by ", Text(event));
  }

  absl::Status Compute(const Event& event, const ProgramEntry& entry, const Step& step) {
    if (step.kind == StepKind::kCopy) return Transfer(event, entry, event.rank, step);
    if (step.kind == StepKind::kUse) {
      std::vector<Part> parts;
      return memory_.Read(event, Key(event.rank, entry, step.source), step.source.offset, step.bytes, &parts);
    }
    if (step.kind == StepKind::kSum) return Sum(event, entry, step);
    if (step.kind != StepKind::kStore && step.kind != StepKind::kAdd && step.kind != StepKind::kScale) return absl::OkStatus();
    const BufferKey from = Key(event.rank, entry, step.source), to = Key(event.rank, entry, step.destination);
    const int64_t size = DTypeBytes(step.dtype);
    std::vector<Part> parts;
    if (absl::Status status = memory_.Read(event, from, step.source.offset, step.bytes, &parts); !status.ok()) return status;
    for (const Part& part : parts) {
      if (part.content.value == kUndefined) {
        return Broken("reads bytes that nobody wrote: ", PlaceText(from, part.offset), ", by ", Text(event));
      }
      const int64_t skipped = part.offset - step.source.offset;
      if (part.content.dtype != step.dtype || skipped % size != 0 || part.content.base % size != 0 || part.bytes % size != 0) {
        return Broken("reads elements wrongly: ", PlaceText(from, part.offset), " holds ", DTypeName(part.content.dtype),
                      " from byte ", part.content.base, " on, read as ", DTypeName(step.dtype), " by ", Text(event));
      }
      const int64_t begin = step.destination.offset + skipped / size * kSumBytes;
      std::string wrong;
      const auto computed = [&](const Part& old) {
        Content content{part.content.value, DType::kFloat32, part.content.base / size * kSumBytes + old.offset - begin};
        const bool final = step.kind == StepKind::kScale || (step.kind == StepKind::kStore && to.buffer == Buffer::kOutput);
        if (final && old.content.value != kUndefined) wrong = "arrives twice";
        if (step.kind != StepKind::kAdd) return content;
        if (old.content.value == kUndefined) {
          wrong = "adds to bytes that nobody wrote";
        } else if (old.content.dtype != DType::kFloat32 || old.content.base != content.base) {
          wrong = "adds different elements";
        }
        content.value = values_.Sum(old.content.value, content.value);
        return content;
      };
      const int64_t bytes = part.bytes / size * kSumBytes;
      if (absl::Status status = memory_.Write(event, to, begin, bytes, computed); !status.ok()) return status;
      if (!wrong.empty()) return Broken(wrong, ": ", PlaceText(to, begin), ", by ", Text(event));
    }
    return absl::OkStatus();
  }

  // A store and then additions, as one event.
  absl::Status Sum(const Event& event, const ProgramEntry& entry, const Step& step) {
    Step part = step;
    part.kind = StepKind::kStore;
    for (const Place& source : entry.schedule->source_sets[step.sources]) {
      part.source = source;
      if (absl::Status status = Compute(event, entry, part); !status.ok()) return status;
      part.kind = StepKind::kAdd;
    }
    return absl::OkStatus();
  }

  absl::Status Train(const Event& event, const ProgramEntry& entry) {
    const auto undefined = [](const Part&) { return Content(); };
    std::vector<Part> parts;
    const int64_t shared = layout_.shared_region().bytes;
    switch (entry.action) {
      case TrainingAction::kReadArena:
        if (absl::Status status = memory_.Read(event, ArenaKey(event.rank, 0), 0, shared, &parts); !status.ok()) return status;
        return memory_.Read(event, {event.rank}, shared, layout_.arena_bytes() - shared, &parts);
      case TrainingAction::kReuseArena:
        if (const BufferKey key = ArenaKey(event.rank, 0); key.rank == event.rank) {
          if (absl::Status status = memory_.Write(event, key, 0, shared, undefined); !status.ok()) return status;
        }
        return memory_.Write(event, {event.rank}, shared, layout_.arena_bytes() - shared, undefined);
      case TrainingAction::kFillShard:
      case TrainingAction::kUseParameters:
        return TrainOnParameters(event, entry);
      default:
        return TrainOnGradients(event, entry);
    }
  }

  absl::Status TrainOnParameters(const Event& event, const ProgramEntry& entry) {
    const CollectiveRun& run = runs_[entry.run];
    const auto& places = layout_.units()[run.unit].parameters;
    const int32_t self = run.groups[PositionOf(run, event.rank)].self;
    for (size_t p = 0; p < places.size(); ++p) {
      const ParameterPlace& place = places[p];
      if (place.storage_of != static_cast<int32_t>(p)) continue;
      const int32_t value = values_.Parameter(entry.run, p);
      const int64_t size = DTypeBytes(layout_.spec().units[run.unit].parameters[p].dtype);
      if (entry.action == TrainingAction::kFillShard) {
        for (int64_t o = 0; o < place.geometry.outer; ++o) {
          const int64_t begin = place.offset + place.geometry.storage_element(self, o) * size;
          const auto own = [&](const Part& part) { return Content{value, DType::kUInt8, part.offset - place.offset}; };
          const int64_t bytes = place.geometry.piece_elements(self) * size;
          if (absl::Status status = memory_.Write(event, ArenaKey(event.rank, begin), begin, bytes, own); !status.ok())
            return status;
        }
        continue;
      }
      std::vector<Part> parts;
      const int64_t bytes = place.geometry.elements() * size;
      if (absl::Status status = memory_.Read(event, ArenaKey(event.rank, place.offset), place.offset, bytes, &parts); !status.ok())
        return status;
      for (const Part& part : parts) {
        if (part.content == Content{value, DType::kUInt8, part.offset - place.offset}) continue;
        return Broken("never arrives: ", PlaceText({event.rank}, part.offset), " should hold parameter ", p, " of '",
                      layout_.spec().units[run.unit].name, "', holds ", values_.Text(part.content.value));
      }
    }
    return absl::OkStatus();
  }

  absl::Status TrainOnGradients(const Event& event, const ProgramEntry& entry) {
    const CollectiveRun& run = runs_[entry.run];
    const auto& places = layout_.units()[run.unit].parameters;
    const int32_t self = run.groups[PositionOf(run, event.rank)].self;
    for (int32_t p = 0; p < static_cast<int32_t>(places.size()); ++p) {
      const Parameter& parameter = layout_.spec().units[run.unit].parameters[p];
      const ShardGeometry& geometry = places[p].geometry;
      if (parameter.frozen || places[p].storage_of != p) continue;
      if (entry.action == TrainingAction::kFreeGradients) {
        const int64_t bytes = geometry.elements() * DTypeBytes(run.gradient_dtype.value_or(parameter.gradient_dtype));
        const auto freed = [](const Part&) { return Content(); };
        const BufferKey key{event.rank, Buffer::kGradient, entry.run, p};
        if (absl::Status status = memory_.Write(event, key, 0, bytes, freed); !status.ok()) return status;
        continue;
      }
      for (int64_t o = 0; o < geometry.outer; ++o) {
        if (absl::Status status = CheckOutput(event, entry.run, p, geometry, self, o); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutput(const Event& event, int32_t run, int32_t p, const ShardGeometry& geometry, int32_t self, int64_t o) {
    const BufferKey key{event.rank, Buffer::kOutput, run, p};
    const int64_t begin = geometry.shard_element(self, o) * kSumBytes;
    std::vector<Part> parts;
    if (absl::Status status = memory_.Read(event, key, begin, geometry.piece_elements(self) * kSumBytes, &parts); !status.ok()) {
      return status;
    }
    for (const Part& part : parts) {
      const int64_t element = geometry.storage_element(self, o) * kSumBytes + part.offset - begin;
      if (part.content.value != kUndefined && part.content.base == element &&
          values_.Ranks(part.content.value, run, p) == ranks_[run]) {
        continue;
      }
      return Broken("wrong sum: ", PlaceText(key, part.offset), " should add every rank's gradient once, for byte ", element,
                    " of the whole, holds byte ", part.content.base, " of ", values_.Text(part.content.value));
    }
    return absl::OkStatus();
  }

  const Layout& layout_;
  const std::vector<CollectiveRun>& runs_;
  const Programs& programs_;
  const HappensBefore& order_;
  Values values_;
  std::vector<std::vector<int32_t>> ranks_;  // by run, ascending
  MemoryModel memory_;
};

// After all is done, whoever reuses what a host shares does so after all its ranks have ended: they tell the first one. On an index
// that schedules do not have.
std::vector<Schedule> ClosingSchedules(const Layout& layout, int32_t ranks) {
  std::vector<Schedule> closing(ranks);
  const int32_t host_ranks = layout.spec().options.host_ranks;
  for (int32_t rank = 0; rank < ranks && layout.shared_region().bytes > 0; ++rank) {
    closing[rank].collective = "end";
    closing[rank].rank = rank;
    const int32_t first = rank / host_ranks * host_ranks;
    if (rank == first) continue;
    Step step;
    step.signal = layout.signals();
    step.count = 1;
    step.kind = StepKind::kSignal;
    step.peer = first;
    closing[rank].steps.push_back(step);
    step.kind = StepKind::kWait;
    step.peer = rank;
    closing[first].steps.push_back(step);
  }
  return closing;
}

}  // namespace

absl::Status VerifyProgram(const Layout& layout, const std::vector<CollectiveRun>& runs,
                           const std::vector<std::vector<ProgramPart>>& order) {
  const int32_t ranks = static_cast<int32_t>(order.size());
  for (const CollectiveRun& run : runs) {
    for (const Schedule& schedule : run.schedules) {
      if (absl::Status status = CheckSteps(layout, schedule, ranks); !status.ok()) return status;
    }
    if (absl::Status status = CheckBytes(layout, run); !status.ok()) return status;
  }
  const std::vector<Schedule> closing = ClosingSchedules(layout, ranks);
  Programs programs(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    programs[rank].push_back({TrainingAction::kReadArena});
    for (const ProgramPart& part : order[rank]) AddPart(runs[part.run], rank, part, programs[rank]);
    for (int32_t step = 0; step < static_cast<int32_t>(closing[rank].steps.size()); ++step) {
      programs[rank].push_back({TrainingAction::kNone, -1, &closing[rank], step});
    }
    programs[rank].push_back({TrainingAction::kReuseArena});
  }
  const auto relation = HappensBefore::Create(programs);
  if (!relation.ok()) return relation.status();
  return Interpreter(layout, runs, programs, *relation).Interpret();
}

absl::Status VerifyCollective(const Layout& layout, const CollectiveRun& run) {
  int32_t ranks = 0;
  for (const Schedule& schedule : run.schedules) ranks = std::max(ranks, schedule.rank + 1);
  std::vector<std::vector<ProgramPart>> order(ranks);
  for (const Schedule& schedule : run.schedules) {
    for (int32_t phase = 0; phase < static_cast<int32_t>(schedule.phases.size()); ++phase) {
      order[schedule.rank].push_back({0, phase});
    }
  }
  return VerifyProgram(layout, {run}, order);
}

}  // namespace tidetape::collectives
