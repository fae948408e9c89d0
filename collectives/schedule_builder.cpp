#include "collectives/schedule_builder.h"

#include <utility>

namespace tidetape::collectives {

ScheduleBuilder::ScheduleBuilder(std::string collective, std::string unit, int32_t slot, int32_t rank, int32_t ready_signal,
                                 const ScheduleOptions& options)
    : ready_signal_(ready_signal), multicast_most_bytes_(options.multicast_most_bytes) {
  schedule_.collective = std::move(collective);
  schedule_.unit = std::move(unit);
  schedule_.slot = slot;
  schedule_.rank = rank;
  schedule_.factor = 1 / options.divide_factor;
  schedule_.puts_in_flight = options.puts_in_flight;
  schedule_.gap = options.gap;
}

void ScheduleBuilder::BeginPhase(std::string name) {
  schedule_.phases.push_back({std::move(name), static_cast<int32_t>(schedule_.steps.size())});
}

void ScheduleBuilder::AwaitReady(int32_t peer) {
  if (ready_.insert(peer).second) Wait(peer, ready_signal_, 1);
}

void ScheduleBuilder::Prepare(int32_t peer) {
  AwaitReady(peer);
  if (in_flight_[peer] == schedule_.puts_in_flight) Flush();
  ++in_flight_[peer];
}

void ScheduleBuilder::Put(int32_t peer, Place source, int64_t destination, int64_t bytes, int32_t signal, bool paced,
                          int32_t slot) {
  Prepare(peer);
  Step step;
  step.kind = StepKind::kPut;
  step.paced = paced;
  step.peer = peer;
  step.signal = signal;
  step.slot = slot;
  step.bytes = bytes;
  step.source = source;
  step.destination = {Buffer::kArena, 0, destination};
  schedule_.steps.push_back(step);
}

void ScheduleBuilder::Multicast(const std::vector<int32_t>& peers, Place source, int64_t destination, int64_t bytes,
                                int32_t signal) {
  if (peers.empty()) return;
  if (peers.size() == 1 || bytes > multicast_most_bytes_) {
    for (int32_t peer : peers) Put(peer, source, destination, bytes, signal, false);
    return;
  }
  for (int32_t peer : peers) Prepare(peer);
  int32_t set = 0;
  while (set < static_cast<int32_t>(schedule_.peer_sets.size()) && schedule_.peer_sets[set] != peers) ++set;
  if (set == static_cast<int32_t>(schedule_.peer_sets.size())) schedule_.peer_sets.push_back(peers);
  Step step;
  step.kind = StepKind::kMulticast;
  step.peer = set;
  step.signal = signal;
  step.bytes = bytes;
  step.source = source;
  step.destination = {Buffer::kArena, 0, destination};
  schedule_.steps.push_back(step);
}

void ScheduleBuilder::Signal(int32_t peer, int32_t signal, int32_t slot) {
  Step step;
  step.kind = StepKind::kSignal;
  step.peer = peer;
  step.signal = signal;
  step.slot = slot;
  schedule_.steps.push_back(step);
}

void ScheduleBuilder::Wait(int32_t peer, int32_t signal, int32_t count, int32_t slot) {
  if (count == 0) return;
  Step step;
  step.kind = StepKind::kWait;
  step.peer = peer;
  step.signal = signal;
  step.count = count;
  step.slot = slot;
  schedule_.steps.push_back(step);
}

void ScheduleBuilder::Flush() {
  in_flight_.clear();
  schedule_.steps.push_back({.kind = StepKind::kFlush});
}

void ScheduleBuilder::Compute(StepKind kind, DType dtype, Place source, Place destination, int64_t elements) {
  Step step;
  step.kind = kind;
  step.dtype = dtype;
  step.bytes = elements * DTypeBytes(dtype);
  step.source = source;
  step.destination = destination;
  schedule_.steps.push_back(step);
}

void ScheduleBuilder::Sum(DType dtype, std::vector<Place> sources, Place destination, int64_t elements) {
  if (sources.size() == 1 && destination.buffer == Buffer::kArena)
    return Compute(StepKind::kStore, dtype, sources[0], destination, elements);
  Step step;
  step.kind = StepKind::kSum;
  step.dtype = dtype;
  step.bytes = elements * DTypeBytes(dtype);
  step.sources = static_cast<int32_t>(schedule_.source_sets.size());
  step.destination = destination;
  schedule_.source_sets.push_back(std::move(sources));
  schedule_.steps.push_back(step);
}

}  // namespace tidetape::collectives
