#include "collectives/simulator/simulate.h"

#include <algorithm>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

// Who sends, who receives, on which index.
using Channel = std::tuple<int32_t, int32_t, int32_t>;

struct Arrivals {
  std::vector<double> times;  // in order
  size_t consumed = 0;
  int32_t waiting = -1;  // rank
};

struct Port {
  double free = 0;
  double busy = 0;
};

struct Rank {
  double now = 0;
  int32_t step = 0;
  double sent = 0;  // when the last of its puts has left
  double next_paced = 0;
  Port send[2], receive[2];  // local, network
};

class Simulator {
 public:
  Simulator(absl::Span<const Schedule> schedules, const Machine& machine, const SimulationOptions& options)
      : schedules_(schedules), machine_(machine), options_(options), ranks_(schedules.size()), results_(schedules.size()) {}

  absl::StatusOr<std::vector<SimulatedRank>> Run() {
    if (options_.fold) {
      if (absl::Status status = Fold(); !status.ok()) return status;
    }
    for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) queue_.push({0, rank});
    while (!queue_.empty()) {
      const int32_t rank = queue_.top().second;
      queue_.pop();
      Advance(rank);
    }
    for (int32_t rank = 0; rank < static_cast<int32_t>(ranks_.size()); ++rank) {
      const Schedule& schedule = schedules_[rank];
      if (ranks_[rank].step < static_cast<int32_t>(schedule.steps.size())) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", rank, " never gets past ", StepText(schedule, ranks_[rank].step), " of ", schedule.collective));
      }
      results_[rank].seconds = ranks_[rank].now;
    }
    return std::move(results_);
  }

 private:
  int32_t Node(int32_t rank) const { return rank / options_.per_node; }

  int32_t Host(int32_t rank) const { return options_.per_host == 0 ? Node(rank) : rank / options_.per_host; }
  int32_t Local(int32_t rank) const { return rank % options_.per_node; }

  // For each pair of local ranks and index: to which nodes the one sends, and from which the other waits. A node that is sent to
  // stands for the node that is waited for: the same one where both exchange, the only one left in a ring.
  absl::Status Fold() {
    absl::flat_hash_map<Channel, std::pair<std::set<int32_t>, std::set<int32_t>>> nodes;
    for (int32_t rank = 0; rank < static_cast<int32_t>(schedules_.size()); ++rank) {
      for (const Step& step : schedules_[rank].steps) {
        if (step.kind != StepKind::kPut && step.kind != StepKind::kSignal && step.kind != StepKind::kWait) continue;
        if (Node(step.peer) == Node(rank)) continue;
        if (step.kind == StepKind::kWait) {
          nodes[{Local(step.peer), rank, step.signal}].second.insert(Node(step.peer));
        } else {
          nodes[{rank, Local(step.peer), step.signal}].first.insert(Node(step.peer));
        }
      }
    }
    for (const auto& [channel, sets] : nodes) {
      const auto& [sender, receiver, signal] = channel;
      if (sets.first == sets.second) continue;
      if (sets.first.size() != 1 || sets.second.size() != 1) {
        return absl::FailedPreconditionError(absl::StrCat("local rank ", sender, " sends on signal ", signal, " to ",
                                                          sets.first.size(), " other nodes, and local rank ", receiver,
                                                          " waits for ", sets.second.size(), "; the nodes do not do the same"));
      }
      mirror_[{sender, *sets.first.begin() * options_.per_node + receiver, signal}] =
          *sets.second.begin() * options_.per_node + sender;
    }
    return absl::OkStatus();
  }

  void Advance(int32_t index) {
    Rank& rank = ranks_[index];
    const Schedule& schedule = schedules_[index];
    if (rank.step == static_cast<int32_t>(schedule.steps.size())) return;
    const Step& step = schedule.steps[rank.step];
    switch (step.kind) {
      case StepKind::kPut:
        if (step.paced) {
          rank.now = std::max(rank.now, rank.next_paced);
          rank.next_paced = rank.now + absl::ToDoubleSeconds(schedule.gap);
        }
        Send(index, step.peer, step, true);
        break;
      case StepKind::kMulticast: {
        bool first = true;
        for (int32_t peer : schedule.peer_sets[step.peer]) {
          Send(index, peer, step, first || !machine_.local.multicast);
          first = false;
        }
        break;
      }
      case StepKind::kSignal:
        Send(index, step.peer, step, true);
        break;
      case StepKind::kWait:
        if (!Wait(index, step)) return;  // Arrive puts it back into the queue
        break;
      case StepKind::kFlush:
        rank.now = std::max(rank.now, rank.sent);
        break;
      case StepKind::kUse:
        break;
      default: {
        const bool goes_on = rank.step > 0 && IsComputation(schedule.steps[rank.step - 1].kind);
        const double seconds = (goes_on ? 0 : machine_.step_seconds) + ComputeSeconds(schedule, step);
        rank.now = Process(Host(index), rank.now, seconds);
        results_[index].compute_seconds += seconds;
      }
    }
    ++rank.step;
    auto& ends = results_[index].phase_end_seconds;
    while (ends.size() < schedule.phases.size() && schedule.end(static_cast<int32_t>(ends.size())) <= rank.step)
      ends.push_back(rank.now);
    queue_.push({rank.now, index});
  }

  static bool IsComputation(StepKind kind) {
    return kind == StepKind::kCopy || kind == StepKind::kStore || kind == StepKind::kAdd || kind == StepKind::kSum ||
           kind == StepKind::kScale;
  }

  double ComputeSeconds(const Schedule& schedule, const Step& step) const {
    const double bytes = static_cast<double>(step.bytes), size = static_cast<double>(DTypeBytes(step.dtype));
    if (step.kind == StepKind::kCopy) return bytes / machine_.copy_bytes_per_second;
    const double additions = bytes / size / machine_.add_elements_per_second;
    if (step.kind != StepKind::kSum) return additions;
    // An addition reads its source and a float and writes a float; a sum reads all sources and writes one float.
    return additions * (static_cast<double>(schedule.source_sets[step.sources].size()) * size + 4) / (size + 8);
  }

  // When work of the host's processors that can begin at `start` is done.
  double Process(int32_t host, double start, double seconds) {
    if (machine_.processors == 0) return start + seconds;
    std::vector<double>& free = processors_.try_emplace(host, machine_.processors, 0.0).first->second;
    double& first = *std::min_element(free.begin(), free.end());
    return first = std::max(first, start) + seconds;
  }

  // `occupies`: the message takes the sender's port; a further receiver of a multicast does not.
  void Send(int32_t index, int32_t peer, const Step& step, bool occupies) {
    Rank& rank = ranks_[index];
    const bool network = Node(peer) != Node(index);
    const LinkModel& link = network ? machine_.network : machine_.local;
    const int32_t receiver = options_.fold ? Local(peer) : peer;
    const double transfer = static_cast<double>(step.bytes) / link.bytes_per_second;
    Port& out = rank.send[network];
    if (occupies) {
      rank.now += link.put_seconds;
      const double start = std::max(out.free, rank.now);
      out.free = link.sender_copies || link.takes_processor ? Process(Host(index), start, transfer) : start + transfer;
      out.busy += transfer;
      rank.sent = std::max(rank.sent, out.free);
      (network ? results_[index].network_busy_seconds : results_[index].local_busy_seconds) = out.busy;
      (network ? results_[index].network_bytes : results_[index].local_bytes) += step.bytes;
      if (link.sender_copies) rank.now = out.free;
    }
    Port& in = ranks_[receiver].receive[network];
    // A signal alone waits for no port.
    const double arrival =
        step.bytes == 0 ? rank.now + link.latency_seconds : std::max(out.free + link.latency_seconds, in.free + transfer);
    if (step.bytes > 0) in.free = arrival;
    int32_t sender = index;
    if (options_.fold && network) {
      const auto other = mirror_.find({index, peer, step.signal});
      sender = other == mirror_.end() ? Node(peer) * options_.per_node + index : other->second;
    }
    Arrive({sender, receiver, step.signal}, arrival);
  }

  void Arrive(const Channel& channel, double time) {
    Arrivals& arrivals = channels_[channel];
    if (!arrivals.times.empty()) time = std::max(time, arrivals.times.back());
    arrivals.times.push_back(time);
    if (arrivals.waiting < 0) return;
    const int32_t index = std::exchange(arrivals.waiting, -1);
    queue_.push({std::max(ranks_[index].now, time), index});
  }

  bool Wait(int32_t index, const Step& step) {
    Arrivals& arrivals = channels_[{step.peer, index, step.signal}];
    const size_t needed = arrivals.consumed + step.count;
    if (arrivals.times.size() < needed) {
      arrivals.waiting = index;
      return false;
    }
    arrivals.consumed = needed;
    ranks_[index].now = std::max(ranks_[index].now, arrivals.times[needed - 1]);
    return true;
  }

  using Turn = std::pair<double, int32_t>;  // when, rank

  const absl::Span<const Schedule> schedules_;
  const Machine& machine_;
  const SimulationOptions& options_;
  std::vector<Rank> ranks_;
  std::vector<SimulatedRank> results_;
  absl::flat_hash_map<Channel, Arrivals> channels_;
  absl::flat_hash_map<Channel, int32_t> mirror_;
  absl::flat_hash_map<int32_t, std::vector<double>> processors_;  // by host: when each is free
  std::priority_queue<Turn, std::vector<Turn>, std::greater<Turn>> queue_;
};

}  // namespace

absl::StatusOr<std::vector<SimulatedRank>> Simulate(absl::Span<const Schedule> schedules, const Machine& machine,
                                                    const SimulationOptions& options) {
  return Simulator(schedules, machine, options).Run();
}

}  // namespace tidetape::collectives
