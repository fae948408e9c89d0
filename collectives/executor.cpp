#include "collectives/executor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/add_kernels.h"

namespace tidetape::collectives {
namespace {

absl::Status TooSmall(const char* what, const Place& place, int64_t bytes, int64_t have) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of parameter ", place.index, " has ", have, " bytes, the schedule needs ", place.offset + bytes));
}

}  // namespace

absl::Status Executor::Run(const Schedule& schedule, const ReduceBuffers& buffers, int64_t training_step) {
  for (int32_t phase = 0; phase < static_cast<int32_t>(schedule.phases.size()); ++phase) {
    if (absl::Status status = RunPhase(schedule, phase, buffers, training_step); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Executor::RunPhase(const Schedule& schedule, int32_t phase, const ReduceBuffers& buffers, int64_t training_step) {
  return RunSteps(schedule, phase, schedule.begin(phase), schedule.end(phase), buffers, training_step);
}

absl::Status Executor::RunSteps(const Schedule& schedule, int32_t phase, int32_t begin, int32_t end, const ReduceBuffers& buffers,
                                int64_t training_step) {
  int64_t most_bytes = 0;
  for (int32_t i = begin; i < end; ++i) {
    most_bytes = std::max(most_bytes, schedule.steps[i].bytes);
  }
  // Before the first step: puts read it later.
  if (static_cast<int64_t>(zeros_.size()) < most_bytes) zeros_.resize(most_bytes);
  for (int32_t i = begin; i < end; ++i) {
    absl::Status status = RunStep(schedule, schedule.steps[i], buffers);
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(schedule.collective, " of '", schedule.unit, "' in slot ", schedule.slot, ", training step ",
                                     training_step, ", rank ", schedule.rank, ", phase '", schedule.phases[phase].name, "', ",
                                     StepText(schedule, i), ": ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status Executor::RunStep(const Schedule& schedule, const Step& step, const ReduceBuffers& buffers) {
  switch (step.kind) {
    case StepKind::kPut: {
      absl::Span<const std::byte> source;
      if (absl::Status status = Source(step.source, step.bytes, buffers, &source); !status.ok()) return status;
      if (step.paced) KeepGap(schedule.gap);
      return transport_.PutSignal(step.peer, source, step.destination.offset, step.signal);
    }
    case StepKind::kMulticast: {
      absl::Span<const std::byte> source;
      if (absl::Status status = Source(step.source, step.bytes, buffers, &source); !status.ok()) return status;
      return transport_.Multicast(schedule.peer_sets[step.peer], source, step.destination.offset, step.signal);
    }
    case StepKind::kSignal:
      return transport_.Signal(step.peer, step.signal);
    case StepKind::kWait: {
      absl::Status status = transport_.WaitSignal(step.peer, step.signal, step.count, absl::Now() + options_.wait_limit);
      if (!status.ok() || options_.after_wait == nullptr) return status;
      return options_.after_wait(step.peer, step.signal);
    }
    case StepKind::kFlush:
      return transport_.Flush(absl::Now() + options_.wait_limit);
    case StepKind::kUse:
      return absl::OkStatus();
    default:
      return Compute(schedule, step, buffers);
  }
}

absl::Status Executor::Compute(const Schedule& schedule, const Step& step, const ReduceBuffers& buffers) {
  absl::Span<const std::byte> source;
  sum_sources_.clear();
  const std::vector<Place> one = {step.source};
  for (const Place& place : step.kind == StepKind::kSum ? schedule.source_sets[step.sources] : one) {
    if (absl::Status status = Source(place, step.bytes, buffers, &source); !status.ok()) return status;
    sum_sources_.push_back(source.data());
  }
  const int64_t elements = step.bytes / DTypeBytes(step.dtype);
  const int64_t written = step.kind == StepKind::kCopy ? step.bytes : elements * static_cast<int64_t>(sizeof(float));
  absl::Span<std::byte> destination;
  if (absl::Status status = Destination(step, written, buffers, &destination); !status.ok()) return status;
  const bool output = step.destination.buffer == Buffer::kOutput;
  const bool accumulate = output && buffers.outputs[step.destination.index].accumulate;
  const float factor = static_cast<float>(schedule.factor);
  switch (step.kind) {
    case StepKind::kStore:
      StoreFloats(destination.data(), source.data(), step.dtype, elements);
      break;
    case StepKind::kAdd:
      AddFloats(destination.data(), source.data(), step.dtype, elements);
      break;
    case StepKind::kSum:
      if (output) {
        ScaleSum(destination.data(), sum_sources_, step.dtype, factor, accumulate, elements);
      } else {
        SumFloats(destination.data(), sum_sources_, step.dtype, elements);
      }
      break;
    case StepKind::kScale:
      ScaleFloats(destination.data(), source.data(), factor, accumulate, elements);
      break;
    default:
      if (step.bytes > 0) std::memmove(destination.data(), source.data(), step.bytes);
  }
  return absl::OkStatus();
}

absl::Status Executor::Source(const Place& place, int64_t bytes, const ReduceBuffers& buffers,
                              absl::Span<const std::byte>* source) {
  absl::Span<const std::byte> memory;
  switch (place.buffer) {
    case Buffer::kArena:
      memory = transport_.arena();
      break;
    case Buffer::kGradient:
      if (place.index >= static_cast<int32_t>(buffers.gradients.size()) || buffers.gradients[place.index].empty()) {
        *source = absl::MakeConstSpan(zeros_).subspan(0, bytes);
        return absl::OkStatus();
      }
      memory = buffers.gradients[place.index];
      break;
    case Buffer::kOutput:
      return absl::InvalidArgumentError("outputs cannot be read");
  }
  const int64_t have = static_cast<int64_t>(memory.size());
  if (place.offset + bytes > have)
    return TooSmall(place.buffer == Buffer::kArena ? "the arena" : "the gradient", place, bytes, have);
  *source = memory.subspan(place.offset, bytes);
  return absl::OkStatus();
}

absl::Status Executor::Destination(const Step& step, int64_t bytes, const ReduceBuffers& buffers,
                                   absl::Span<std::byte>* destination) {
  const Place& place = step.destination;
  absl::Span<std::byte> memory;
  switch (place.buffer) {
    case Buffer::kArena:
      memory = transport_.arena();
      break;
    case Buffer::kGradient:
      return absl::InvalidArgumentError("gradients cannot be written");
    case Buffer::kOutput: {
      if (place.index >= static_cast<int32_t>(buffers.outputs.size())) return TooSmall("the gradient shard", place, bytes, 0);
      const absl::Span<float> shard = buffers.outputs[place.index].shard;
      memory = absl::MakeSpan(reinterpret_cast<std::byte*>(shard.data()), shard.size() * sizeof(float));
      break;
    }
  }
  const int64_t have = static_cast<int64_t>(memory.size());
  if (place.offset + bytes > have)
    return TooSmall(place.buffer == Buffer::kArena ? "the arena" : "the gradient shard", place, bytes, have);
  *destination = memory.subspan(place.offset, bytes);
  return absl::OkStatus();
}

void Executor::KeepGap(absl::Duration gap) {
  if (gap == absl::ZeroDuration()) return;
  const absl::Time now = absl::Now();
  if (now < next_paced_) absl::SleepFor(next_paced_ - now);
  next_paced_ = std::max(now, next_paced_) + gap;
}

}  // namespace tidetape::collectives
