// What a session has measured so far: a merged tape or the options of each kind of block, and memory through the steady steps.
#ifndef TIDETAPE_AGENT_SESSION_MEASUREMENTS_H_
#define TIDETAPE_AGENT_SESSION_MEASUREMENTS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/link/tt_link.h"
#include "agent/measure/step_profile.h"
#include "agent/session/held_inputs.h"
#include "agent/session/link_client.h"
#include "agent/session/mark_sequence.h"
#include "agent/session/merged_tape.h"
#include "agent/session/option_measurements.h"
#include "agent/session/schedule.h"
#include "agent/tape/tape.h"

namespace tidetape::agent {

// The memory profile of a step report, and what its pointers point to.
struct ProfileReport {
  bool complete = false;  // every execution of the step has a tape, or options that are measured, and a backward
  bool early = false;     // of fewer steps than a plan is made of
  std::vector<tt_profiled_block> blocks;
  int64_t head_peak_bytes = 0;
  int64_t outside_peak_bytes = 0;
  // Of the blocks' bases and the two peaks, see tidetape.v1.Headroom.
  int64_t block_headroom_bytes = 0;
  int64_t head_headroom_bytes = 0;
  int64_t outside_headroom_bytes = 0;
  std::vector<tt_tape_costs> costs;
  std::vector<std::vector<int64_t>> bytes;
  std::vector<std::vector<Site>> held_inputs;
  std::vector<std::vector<tt_block_option>> options;
  std::vector<int32_t> schedule;
  std::vector<std::vector<double>> seconds;
};

// Not thread-safe.
class Measurements {
 public:
  // A recording whose replay was timed; its backward is over.
  void AddTape(const Tape& tape);

  // Memory of a steady step; `names` of its block executions in order, `held` the inputs that they held alone.
  void AddProfile(const StepMemory& memory, const std::vector<std::string>& names, const HeldInputs& held);

  // Of blocks without a tape.
  OptionMeasurements& options() { return options_; }
  const OptionMeasurements& options() const { return options_; }

  // Enough steady steps were seen to plan by, and every option of a block without a tape. Before, a report is an early one: it can
  // confirm what an earlier run measured.
  bool ready() const;
  // The newest step had ops that no step before it had.
  bool had_news() const { return news_; }
  // Steps differ in their ops or sizes.
  bool varying() const { return varying_; }
  // The planner lacks a tape, or knows one badly.
  bool wants_sending() const;

  // All of it, with a margin for what differs between steps, and tapes that the planner lacks sent before.
  ProfileReport Report(const LinkLibrary& library, tt_link* link, int64_t step_peak_bytes);

  // By block, the storages of its tape.
  std::map<std::string, std::vector<SiteInfo>> Sites() const;
  // The blocks' tapes and options as text; `actions_of` says what is planned for a block, null for nothing, `option_of` by which of
  // its options a block runs.
  std::string ToText(const std::function<const BlockActions*(const std::string& block)>& actions_of,
                     const std::function<int32_t(const std::string& block)>& option_of) const;

 private:
  struct Instance {
    std::string name;
    int64_t forward_start_bytes = 0;
    int64_t forward_peak_bytes = 0;
    MarkSequence marks;
    std::vector<Site> held_inputs;  // in every step; ascending
  };

  // An execution of a block without a tape.
  tt_profiled_block ReportOptions(const Instance& instance, int64_t margin, ProfileReport& report) const;
  // Of all executions of the tape's blocks.
  MarkSequence MarksOf(const MergedTape& tape) const;

  // The peaks of all steps in one part of a step.
  class PartPeaks {
   public:
    void Add(int64_t bytes) {
      least_ = std::min(least_, bytes);
      most_ = std::max(most_, bytes);
    }
    int64_t most() const { return most_; }
    // What the largest was above the least: a later step may be above the largest by as much.
    int64_t spread() const { return std::max<int64_t>(most_ - least_, 0); }

   private:
    int64_t least_ = std::numeric_limits<int64_t>::max();
    int64_t most_ = 0;
  };

  std::map<std::string, std::shared_ptr<MergedTape>> tape_of_block_;
  // By the structure of a block's first recording: equal blocks share a tape, but those whose sizes depend on values, which have
  // one each, by their names.
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<MergedTape>> tapes_;
  OptionMeasurements options_;
  std::vector<Instance> instances_;
  std::vector<int32_t> schedule_;  // of the newest profile
  int32_t profiles_ = 0;
  bool sent_early_ = false;  // tapes of few steps, to be looked at again
  bool news_ = false;
  bool varying_ = false;      // news came after the first steady step, or sizes changed
  int64_t spread_bytes_ = 0;  // largest difference between two steps at one place of a block
  PartPeaks head_;
  PartPeaks outside_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_MEASUREMENTS_H_
