// One attached model: its blocks, the step that runs, the plan in force, and the link to the planner.
#ifndef TIDETAPE_AGENT_SESSION_SESSION_H_
#define TIDETAPE_AGENT_SESSION_SESSION_H_

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/session/collective_figures.h"
#include "agent/session/held_inputs.h"
#include "agent/session/link_client.h"
#include "agent/session/measurements.h"
#include "agent/session/option_execution.h"
#include "agent/session/plan_table.h"
#include "agent/tape/block.h"
#include "agent/tape/tape.h"

namespace tidetape::agent {

struct LinkOptions {
  std::string library;  // path of libtt_agent.so
  std::string planner;  // "local" or "host:port"
  std::string job;
  std::string incarnation;
  int64_t incarnation_order = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  std::string node;
  std::string torch_version;
  std::string device;
  std::string agent_version;
};

struct StepStats {
  int64_t step = -1;  // number since attach, from 0
  int64_t generation = 0;
  double step_seconds = 0;
  int64_t step_peak_bytes = 0;
  int64_t saved_bytes = 0;
  double replay_seconds = 0;
  int64_t replayed_ops = 0;
  int64_t demoted_ops = 0;  // values that are kept because they cannot be reproduced
  int64_t demoted_bytes = 0;
  int64_t consumed_bytes = 0;  // all that backward reads of the blocks' own values
  int64_t moved_bytes = 0;     // to host memory
  int64_t recorded_ops = 0;
  int64_t bookkeeping_bytes = 0;  // of all tapes of the step together
  double agent_seconds = 0;
  std::vector<int64_t> live_bytes;  // through the step, in profiled steps
};

// Block calls come from the thread that runs forward; tapes end on the thread that runs backward; step calls come between.
class Session final : public TapeObserver, public OptionObserver, public std::enable_shared_from_this<Session> {
 public:
  // `memory_limit_bytes`: on the step peak; 0: the least-memory plan; -1: keep everything.
  explicit Session(int64_t memory_limit_bytes);
  ~Session() override;

  // Returns the block's number.
  int32_t AddBlock(const std::string& name);
  Block& block(int32_t number) { return *blocks_.at(number); }

  // The block's forward begins. False: it runs without a tape (no gradients wanted, inside another block, user hooks in force).
  bool BeginBlock(int32_t number, const std::vector<at::Tensor>& inputs);
  // It ended, or threw. Until backward, writes to what its tape replays from are seen also outside of blocks.
  void EndBlock();

  // The block runs by options instead of with a tape, from the leanest on; blocks of one kind share what is measured, and
  // have one structure, by which the planner knows them. Once, before its first BeginOption.
  void SetOptions(int32_t number, uint64_t kind, uint64_t structure, const std::vector<std::string>& labels);
  // From now on the block runs without Tidetape.
  void DropOptions(int32_t number);
  // The forward of a block with options begins, and says by which. Null: it runs as it is without Tidetape.
  std::shared_ptr<OptionExecution> BeginOption(int32_t number);
  // A block ran without a tape or an option. Returns false.
  bool PassThrough(const char* reason);

  // Around what is no part of the block's computation: collectives that gather a unit inside it, say.
  void Pause();
  void Resume();

  // Which recordings are audited; see tape/audit.h.
  enum class Audit { kNever, kNewStructures, kEveryRecording };
  void SetAudit(Audit audit) { audit_ = audit; }

  // An optimizer finished its step.
  void NoteOptimizerStep() { optimizer_steps_.fetch_add(1, std::memory_order_relaxed); }

  // What the collectives took since the last step's end; goes with the next report.
  void NoteCollectives(CollectiveFigures figures);

  // Opens the link. Throws std::runtime_error where the library or an option is bad.
  void Connect(const LinkOptions& options);
  void Disconnect(double timeout_seconds);
  bool connected_to_planner(std::string& last_error) const;

  // Ends the step: measures, reports, and takes a new candidate plan if there is one. `agent_seconds`: CPU time of the training
  // thread that the last step boundary took.
  StepStats FinishStep(double agent_seconds);

  // The highest generation held, and the one in force; 0 without a plan.
  int64_t held_generation() const;
  int64_t active_generation() const;
  // Puts a held plan in force from the next block on. False where it is not held.
  bool Activate(int64_t generation);
  std::shared_ptr<const HeldPlan> plan() const;

  void SetMemoryLimit(int64_t bytes);
  int64_t memory_limit_bytes() const { return memory_limit_bytes_; }

  // Gives the planner so much host memory for values that are moved, and measures the way there; without this there is none.
  void SetHostLimit(int64_t bytes);
  double host_bytes_per_second() const { return host_bytes_per_second_; }

  // Puts a plan made by hand in force, from the next block on.
  void Impose(std::shared_ptr<const HeldPlan> plan);

  // The tapes as text, and the values on them by block.
  std::string Explain() const;
  std::map<std::string, std::vector<SiteInfo>> Sites() const;
  // Values that are kept because they cannot be reproduced: block and op, with their bytes.
  std::map<std::string, int64_t> Demotions() const;
  // Reasons why block executions ran without a tape, with their counts.
  std::map<std::string, int64_t> PassedThrough() const;

  void OnBackwardAhead(Tape& tape) override;
  void OnBackwardBegin(Tape& tape) override;
  void OnBackwardEnd(Tape& tape) override;
  void OnAbandoned(Tape& tape) override;

  void OnOptionForwardEnd(const OptionExecution& execution) override;
  void OnOptionBackwardBegin(const std::shared_ptr<OptionExecution>& execution) override;
  bool OnOptionBackwardEnd(const OptionExecution& execution) override;
  void OnOptionAbandoned(bool begun) override;

 private:
  // A managed block's forward begins: its position in the order of execution.
  int32_t NextPosition(int32_t number);
  int32_t OptionFor(int32_t position, const std::string& block);
  void EndRunningOption();
  void AddOptionSamples(const StepMemory& memory);
  const BlockActions* ActionsFor(int32_t position, const Block& block);
  bool AuditNext(Block& block, const BlockActions* actions);
  void NoteHeldInputs();
  void NoteAudit(const Tape& tape, bool audited);
  void NoteDemotions(const Tape& tape);
  void Report(const StepStats& stats, bool profiled);
  bool Steady() const;
  bool ProfileNext() const;
  bool WorthReporting(const StepStats& stats) const;
  void TakeCandidate();

  std::vector<std::shared_ptr<Block>> blocks_;
  int64_t memory_limit_bytes_;
  int64_t host_limit_bytes_ = 0;
  double host_bytes_per_second_ = 0;
  bool reports_early_ = false;  // the planner may know earlier runs
  BlockActions keep_all_;       // for memory_limit_bytes -1, without any plan

  Audit audit_ = Audit::kNewStructures;
  int64_t step_ = 0;
  int64_t activated_at_ = 0;
  int32_t position_ = 0;
  int32_t first_block_ = -1;
  bool intercepting_before_pause_ = false;
  bool watching_before_pause_ = false;
  std::vector<std::string> names_;                       // of the executions of the step
  HeldInputs held_inputs_;                               // of this step
  std::optional<c10::weak_intrusive_ptr<Tape>> before_;  // the last one recorded in this forward pass
  std::chrono::steady_clock::time_point step_start_;
  std::atomic<int64_t> optimizer_steps_{0};
  int64_t optimizer_steps_before_ = 0;       // at the start of this step
  std::atomic<int32_t> open_executions_{0};  // whose backward is to come

  mutable std::mutex mutex_;  // guards all below, which tapes change when they end
  StepStats running_;
  std::optional<CollectiveFigures> collectives_;  // of this step
  Measurements measurements_;
  std::map<std::string, int64_t> demotions_;
  // Blocks that ran by an option in this step, by position.
  struct OptionRun {
    std::string block;
    int32_t option = 0;
    int64_t saved_bytes = 0;
    double seconds = 0;
  };
  std::map<int32_t, OptionRun> option_runs_;
  bool first_executions_ = false;                              // of options in this step, which compile: its memory is no measure
  std::weak_ptr<OptionExecution> running_option_;              // whose backward runs
  std::map<int32_t, c10::weak_intrusive_ptr<Tape>> recorded_;  // tapes of this forward pass that move values, by position
  std::map<std::string, int64_t> passed_through_;
  std::shared_ptr<const HeldPlan> plan_;
  std::map<int64_t, std::shared_ptr<const HeldPlan>> candidates_;

  const LinkLibrary* library_ = nullptr;
  tt_link* link_ = nullptr;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_SESSION_H_
