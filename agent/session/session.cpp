#include "agent/session/session.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "agent/measure/meter.h"
#include "agent/measure/step_profile.h"
#include "agent/tape/intercept.h"
#include "agent/tape/open_tapes.h"
#include "agent/tape/recorder.h"
#include "agent/tape/saved_hooks.h"

namespace tidetape::agent {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Every step is profiled at first and after a switch, later every so many.
constexpr int64_t kProfiledSteps = 8;
constexpr int64_t kProfiledStepsAfterSwitch = 4;
constexpr int64_t kProfilePeriod = 64;
// So long every step is profiled while steps bring new ops.
constexpr int64_t kVaryingProfiledSteps = 64;
// A block with a new structure is audited again after so many executions, and so many times in all.
constexpr int32_t kExecutionsBetweenAudits = 8;
constexpr int32_t kMostAudits = 16;
// Candidates that ranks may still agree on.
constexpr size_t kCandidates = 8;

}  // namespace

Session::Session(int64_t memory_limit_bytes) : memory_limit_bytes_(memory_limit_bytes), step_start_(Clock::now()) {
  keep_all_.save_by_default = true;
  LimitHostBytes(INT64_MAX);  // for plans made by hand
  StepProfile::Get().FinishStep(/*profile_next=*/true);
}

Session::~Session() { Disconnect(0); }

int32_t Session::AddBlock(const std::string& name) {
  blocks_.push_back(std::make_shared<Block>(name));
  return static_cast<int32_t>(blocks_.size()) - 1;
}

bool Session::PassThrough(const char* reason) {
  const std::lock_guard lock(mutex_);
  ++passed_through_[reason];
  return false;
}

const BlockActions* Session::ActionsFor(int32_t position, const Block& block) {
  const std::lock_guard lock(mutex_);
  if (plan_ == nullptr) return memory_limit_bytes_ == -1 ? &keep_all_ : nullptr;
  const BlockActions* actions = plan_->Find(position, block.name());
  if (actions == nullptr || plan_->memory_limit_bytes <= 0 || !plan_->feasible) return actions;
  // The block's own decision: rather replay all of it than go past the limit.
  if (meter::LiveBytes() + actions->forward_bytes > plan_->memory_limit_bytes) {
    ++passed_through_["saved nothing: the block was about to overrun the limit"];
    return nullptr;
  }
  return actions;
}

bool Session::BeginBlock(int32_t number, const std::vector<at::Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) return false;
  if (Recorder::Current() != nullptr) return PassThrough("inside another block");
  if (UserHooksInForce()) return PassThrough("saved-tensor hooks of the user in force");
  const std::shared_ptr<Block>& block = blocks_.at(number);
  const int32_t position = NextPosition(number);
  auto tape = c10::make_intrusive<Tape>(block, position, shared_from_this());
  StepProfile& profile = StepProfile::Get();
  tape->measured_costs = profile.profiling();
  profile.ForwardBegins(position);
  NoteHeldInputs();
  const BlockActions* actions = ActionsFor(position, *block);
  Recorder& recorder = Recorder::OfThisThread();
  recorder.set_auditing(AuditNext(*block, actions));
  recorder.Begin(std::move(tape), actions, inputs);
  SetWatchingWrites(false);
  SetIntercepting(true);
  return true;
}

int32_t Session::NextPosition(int32_t number) {
  if (open_executions_ == 0 && (position_ == 0 || number == first_block_)) {
    // A forward pass begins; several of them make one step under gradient accumulation.
    position_ = 0;
    first_block_ = number;
    names_.clear();
    const std::lock_guard lock(mutex_);
    running_.saved_bytes = 0;
  }
  // Between the last block of a forward pass and the first one of the next lies the head: too late to say what the block held.
  if (number == first_block_) before_.reset();
  names_.push_back(blocks_.at(number)->name());
  return position_++;
}

void Session::SetOptions(int32_t number, uint64_t kind, uint64_t structure, const std::vector<std::string>& labels) {
  const std::lock_guard lock(mutex_);
  measurements_.options().AddBlock(blocks_.at(number)->name(), kind, structure, labels);
}

void Session::DropOptions(int32_t number) {
  const std::lock_guard lock(mutex_);
  measurements_.options().RemoveBlock(blocks_.at(number)->name());
}

std::shared_ptr<OptionExecution> Session::BeginOption(int32_t number) {
  if (Recorder::Current() != nullptr) {
    PassThrough("inside another block");
    return nullptr;
  }
  const std::string& block = blocks_.at(number)->name();
  const int32_t position = NextPosition(number);
  NoteHeldInputs();
  const int32_t option = OptionFor(position, block);
  const std::lock_guard lock(mutex_);
  const bool first = measurements_.options().FirstExecution(block, option);
  first_executions_ |= first;
  return std::make_shared<OptionExecution>(shared_from_this(), block, position, option, first);
}

int32_t Session::OptionFor(int32_t position, const std::string& block) {
  const std::lock_guard lock(mutex_);
  const OptionMeasurements& options = measurements_.options();
  const PlannedBlock* planned = plan_ == nullptr ? nullptr : plan_->FindBlock(position, block);
  if (planned == nullptr || planned->option < 0) {
    if (memory_limit_bytes_ == -1) return static_cast<int32_t>(options.NumOptions(block)) - 1;
    return link_ == nullptr ? 0 : options.Trial(block);
  }
  if (static_cast<size_t>(planned->option) >= options.NumOptions(block)) {
    ++passed_through_["ran by the first option: the plan names one that the block has not got"];
    return 0;
  }
  const bool limited = plan_->memory_limit_bytes > 0 && plan_->feasible;
  if (limited && meter::LiveBytes() + options.SavedBytes(block, planned->option) > plan_->memory_limit_bytes) {
    ++passed_through_["ran by the first option: the block was about to overrun the limit"];
    return 0;
  }
  return planned->option;
}

void Session::NoteHeldInputs() {
  const TapePtr before = before_ ? before_->lock() : TapePtr();
  if (before) held_inputs_.Add(before->position, before->FindHeldInputs());
  before_.reset();
}

bool Session::AuditNext(Block& block, const BlockActions* actions) {
  if (audit_ != Audit::kNewStructures) return audit_ == Audit::kEveryRecording;
  Block::Audits& audits = block.audits;
  if (!audits.wanted || audits.done >= kMostAudits) return false;
  if (audits.done > 0 && ++audits.executions_since < kExecutionsBetweenAudits) return false;
  // An audit holds what plain training would hold of the block; there may be no room for that.
  const std::lock_guard lock(mutex_);
  if (plan_ == nullptr || plan_->memory_limit_bytes <= 0 || actions == nullptr) return true;
  return meter::LiveBytes() + audits.bytes <= plan_->memory_limit_bytes;
}

void Session::NoteAudit(const Tape& tape, bool audited) {
  Block::Audits& audits = tape.block->audits;
  if (audited) {
    audits.structures.insert(tape.structure_hash);
    audits.executions_since = 0;
    ++audits.done;
  }
  audits.wanted = audits.structures.count(tape.structure_hash) == 0;
}

void Session::NoteDemotions(const Tape& tape) {
  std::map<std::string, int> seen;
  for (size_t i = 0; i < tape.ops.size(); ++i) {
    const OpRecord& op = tape.ops[i];
    const int occurrence = seen[op.facts->name]++;
    for (uint32_t v = op.first_output; v < op.end_output; ++v) {
      if (tape.values[v].storage < 0) continue;
      const StorageRecord& storage = tape.storages[tape.values[v].storage];
      if (!storage.must_save || storage.handles == 0 || storage.creator != static_cast<int32_t>(i)) continue;
      demotions_[tape.block->name() + ": " + op.facts->name + "#" + std::to_string(occurrence) + ", output " +
                 std::to_string(v - op.first_output)] = storage.bytes;
    }
  }
}

void Session::EndBlock() {
  SetIntercepting(false);
  Recorder& recorder = Recorder::OfThisThread();
  const TapePtr tape = recorder.End();
  NoteAudit(*tape, recorder.auditing());
  StepProfile::Get().ForwardEnds();
  tape->MovePlanned();
  StepProfile::Get().MovesEnd();
  if (host_limit_bytes_ > 0) before_ = c10::weak_intrusive_ptr<Tape>(tape);
  ++open_executions_;
  {
    const std::lock_guard lock(mutex_);
    running_.saved_bytes += tape->saved_bytes;
    running_.recorded_ops += static_cast<int64_t>(tape->ops.size());
    running_.bookkeeping_bytes += tape->BookkeepingBytes();
    running_.moved_bytes += tape->moved_bytes;
    int64_t demoted = 0, consumed_bytes = 0;
    for (const StorageRecord& storage : tape->storages) {
      if (storage.kind != StorageKind::kIntermediate || storage.handles == 0) continue;
      consumed_bytes += storage.bytes;
      if (!storage.must_save) continue;
      ++demoted;
      running_.demoted_bytes += storage.bytes;
    }
    running_.demoted_ops += demoted;
    running_.consumed_bytes += consumed_bytes;
    tape->block->audits.bytes = consumed_bytes;
    if (demoted > 0) NoteDemotions(*tape);
    if (tape->moved_bytes > 0) recorded_.insert_or_assign(tape->position, c10::weak_intrusive_ptr<Tape>(tape));
  }
  if (tape->live_handles == 0) tape->Close();
  SetWatchingWrites(open_tapes::Any());
}

void Session::Pause() {
  intercepting_before_pause_ = Intercepting();
  watching_before_pause_ = WatchingWrites();
  SetIntercepting(false);
  SetWatchingWrites(false);
}

void Session::Resume() {
  SetIntercepting(intercepting_before_pause_);
  SetWatchingWrites(watching_before_pause_);
}

void Session::OnOptionForwardEnd(const OptionExecution& execution) {
  ++open_executions_;
  const std::lock_guard lock(mutex_);
  running_.saved_bytes += execution.saved_bytes();
}

void Session::OnOptionBackwardBegin(const std::shared_ptr<OptionExecution>& execution) {
  EndRunningOption();
  const std::lock_guard lock(mutex_);
  running_option_ = execution;
}

bool Session::OnOptionBackwardEnd(const OptionExecution& execution) {
  const bool others = --open_executions_ > 0;
  const std::lock_guard lock(mutex_);
  running_option_.reset();
  const OptionMeasurements& options = measurements_.options();
  if (!options.Has(execution.block())) return others;
  running_.replay_seconds += options.ExtraSeconds(execution.block(), execution.seconds());
  if (!execution.first()) {
    option_runs_[execution.position()] = {execution.block(), execution.option(), execution.saved_bytes(), execution.seconds()};
  }
  return others;
}

void Session::OnOptionAbandoned(bool begun) {
  if (begun) --open_executions_;
}

void Session::EndRunningOption() {
  std::shared_ptr<OptionExecution> running;
  {
    const std::lock_guard lock(mutex_);
    running = running_option_.lock();
  }
  if (running) running->EndBackward();
}

void Session::AddOptionSamples(const StepMemory& memory) {
  for (const auto& [position, run] : option_runs_) {
    if (static_cast<size_t>(position) >= memory.instances.size() || !measurements_.options().Has(run.block)) continue;
    const InstanceProfile& seen = memory.instances[position];
    if (!seen.complete || seen.marks.empty()) continue;
    // Its first mark is the backward itself, during which what it saved counted as planned.
    int64_t peak = seen.marks.front().peak_bytes + run.saved_bytes;
    for (size_t i = 1; i < seen.marks.size(); ++i) peak = std::max(peak, seen.marks[i].peak_bytes);
    const int64_t forward = seen.forward_peak_bytes + run.saved_bytes - seen.forward_start_bytes;
    measurements_.options().Add(run.block,
                                {run.option, run.saved_bytes, forward, peak - seen.marks.front().start_bytes, run.seconds});
  }
}

void Session::OnBackwardAhead(Tape&) { EndRunningOption(); }

void Session::OnBackwardBegin(Tape& tape) {
  TapePtr before;
  {
    const std::lock_guard lock(mutex_);
    const auto found = recorded_.find(tape.position - 1);
    if (found != recorded_.end()) before = found->second.lock();
  }
  if (before) before->Prefetch();
}

void Session::OnBackwardEnd(Tape& tape) {
  const bool others = --open_executions_ > 0;
  StepProfile::Get().BackwardEnds(tape.position, others);
  const std::lock_guard lock(mutex_);
  running_.replay_seconds += tape.replay_seconds;
  running_.replayed_ops += tape.replayed_ops;
  if (!tape.measured_costs || !tape.backward_begun) return;
  measurements_.AddTape(tape);
}

void Session::OnAbandoned(Tape&) { --open_executions_; }

bool Session::Steady() const {
  // The optimizer's state exists once it has stepped; a loop without an optimizer is taken as steady after three steps.
  return step_ >= 1 && (optimizer_steps_before_ > 0 || step_ >= 3);
}

bool Session::ProfileNext() const {
  return step_ < kProfiledSteps || step_ < activated_at_ + kProfiledStepsAfterSwitch || step_ % kProfilePeriod == 0 ||
         (link_ != nullptr && plan_ == nullptr && !measurements_.options().measured()) ||
         (step_ < kVaryingProfiledSteps && (measurements_.had_news() || (measurements_.varying() && !measurements_.ready())));
}

// Before there is enough to plan by, a server may know an earlier run. A plan that keeps its limit stays in force while steps vary:
// each would bring a largest value of something.
bool Session::WorthReporting(const StepStats& stats) const {
  if (!measurements_.ready()) return plan_ == nullptr && reports_early_;
  return plan_ == nullptr || !measurements_.varying() || stats.step_peak_bytes > plan_->memory_limit_bytes ||
         measurements_.wants_sending() || stats.step % kProfilePeriod == 0;
}

StepStats Session::FinishStep(double agent_seconds) {
  const bool profiled = StepProfile::Get().profiling();
  const bool steady = Steady();
  const Clock::time_point now = Clock::now();
  StepStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = std::exchange(running_, {});
    stats.generation = plan_ == nullptr ? 0 : plan_->generation;
  }
  stats.step = step_++;
  stats.step_seconds = Seconds(now - step_start_);
  step_start_ = now;
  stats.agent_seconds = agent_seconds;
  const bool report_profile = profiled && steady && !names_.empty();
  const StepMemory memory = StepProfile::Get().FinishStep(ProfileNext());
  stats.step_peak_bytes = memory.step_peak_bytes;
  stats.live_bytes = memory.live_bytes;
  {
    const std::lock_guard lock(mutex_);
    recorded_.clear();
    if (report_profile) AddOptionSamples(memory);
    if (report_profile && !first_executions_) measurements_.AddProfile(memory, names_, held_inputs_);
    option_runs_.clear();
    first_executions_ = false;
    measurements_.options().NextStep();
    Report(stats, report_profile && WorthReporting(stats));
  }
  held_inputs_ = {};
  position_ = 0;
  optimizer_steps_before_ = optimizer_steps_.load(std::memory_order_relaxed);
  TakeCandidate();
  return stats;
}

void Session::Report(const StepStats& stats, bool profiled) {
  if (link_ == nullptr) return;
  tt_step_report report = {};
  report.step = stats.step;
  report.generation = stats.generation;
  report.step_seconds = stats.step_seconds;
  report.step_peak_bytes = stats.step_peak_bytes;
  report.saved_bytes = stats.saved_bytes;
  report.replay_seconds = stats.replay_seconds;
  report.replayed_ops = stats.replayed_ops;
  report.demoted_ops = stats.demoted_ops;
  report.agent_seconds = stats.agent_seconds;
  report.live_bytes = stats.live_bytes.data();
  report.num_live_bytes = stats.live_bytes.size();

  std::optional<BorrowedFigures> collectives;
  if (collectives_.has_value()) report.collectives = collectives.emplace(*collectives_).report();
  collectives_.reset();
  ProfileReport profile;
  if (profiled && memory_limit_bytes_ >= 0) {
    profile = measurements_.Report(*library_, link_, stats.step_peak_bytes);
    report.has_profile = profile.complete;
    report.steady = profile.complete && !profile.early;
    report.early = profile.complete && profile.early;
    report.blocks = profile.blocks.data();
    report.num_blocks = profile.blocks.size();
    report.head_peak_bytes = profile.head_peak_bytes;
    report.optimizer_peak_bytes = profile.outside_peak_bytes;
    report.schedule = profile.schedule.data();
    report.num_schedule = profile.schedule.size();
    report.block_headroom_bytes = profile.block_headroom_bytes;
    report.head_headroom_bytes = profile.head_headroom_bytes;
    report.optimizer_headroom_bytes = profile.outside_headroom_bytes;
    report.host_bytes_limit = host_limit_bytes_;
    report.host_bytes_per_second = host_bytes_per_second_;
    report.costs = profile.costs.data();
    report.num_costs = profile.costs.size();
  }
  library_->report_step(link_, &report);
}

void Session::NoteCollectives(CollectiveFigures figures) {
  const std::lock_guard lock(mutex_);
  collectives_ = std::move(figures);
}

void Session::TakeCandidate() {
  if (link_ == nullptr) return;
  const tt_plan* plan = library_->take_plan(link_, held_generation());
  if (plan == nullptr) return;
  auto held = std::make_shared<const HeldPlan>(*plan);
  library_->release_plan(plan);
  const std::lock_guard lock(mutex_);
  candidates_[held->generation] = std::move(held);
  while (candidates_.size() > kCandidates) candidates_.erase(candidates_.begin());
}

int64_t Session::held_generation() const {
  const std::lock_guard lock(mutex_);
  const int64_t active = plan_ == nullptr ? 0 : plan_->generation;
  return candidates_.empty() ? active : std::max(active, candidates_.rbegin()->first);
}

int64_t Session::active_generation() const {
  const std::lock_guard lock(mutex_);
  return plan_ == nullptr ? 0 : plan_->generation;
}

bool Session::Activate(int64_t generation) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = candidates_.find(generation);
    if (found == candidates_.end()) return false;
    plan_ = found->second;
    candidates_.erase(candidates_.begin(), ++candidates_.find(generation));
    activated_at_ = step_;
  }
  if (link_ != nullptr) library_->plan_activated(link_, generation, step_);
  return true;
}

std::shared_ptr<const HeldPlan> Session::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

void Session::SetMemoryLimit(int64_t bytes) {
  memory_limit_bytes_ = bytes;
  if (link_ != nullptr) library_->set_memory_limit(link_, bytes);
}

void Session::SetHostLimit(int64_t bytes) {
  host_bytes_per_second_ = MeasureHostBandwidth();
  host_limit_bytes_ = host_bytes_per_second_ > 0 ? bytes : 0;
  LimitHostBytes(bytes);
  StepProfile::Get().FinishStep(/*profile_next=*/true);  // the measurement is no part of the first step
}

void Session::Connect(const LinkOptions& options) {
  if (link_ != nullptr) throw std::runtime_error("tidetape: the session has a planner already");
  library_ = &LoadLinkLibrary(options.library);
  // The planner in this process knows no earlier runs.
  reports_early_ = options.planner != "local";
  tt_link_options given = {};
  given.planner = options.planner.c_str();
  given.job = options.job.c_str();
  given.incarnation = options.incarnation.c_str();
  given.incarnation_order = options.incarnation_order;
  given.rank = options.rank;
  given.world_size = options.world_size;
  given.node = options.node.c_str();
  given.torch_version = options.torch_version.c_str();
  given.device = options.device.c_str();
  given.agent_version = options.agent_version.c_str();
  given.memory_limit_bytes = memory_limit_bytes_;
  char error[512] = {};
  link_ = library_->open(&given, error, sizeof(error));
  if (link_ == nullptr) throw std::runtime_error(std::string("tidetape: ") + error);
}

void Session::Disconnect(double timeout_seconds) {
  if (link_ == nullptr) return;
  library_->close(std::exchange(link_, nullptr), timeout_seconds);
}

bool Session::connected_to_planner(std::string& last_error) const {
  if (link_ == nullptr) return false;
  tt_link_state_info info = {};
  if (library_->state(link_, &info) != TT_LINK_OK) return false;
  last_error = info.last_error == nullptr ? "" : info.last_error;
  return info.connected != 0;
}

std::string Session::Explain() const {
  const std::lock_guard lock(mutex_);
  const auto actions_of = [this](const std::string& block) -> const BlockActions* {
    if (plan_ != nullptr) return plan_->Find(-1, block);
    return memory_limit_bytes_ == -1 ? &keep_all_ : nullptr;
  };
  const auto option_of = [this](const std::string& block) {
    const PlannedBlock* planned = plan_ == nullptr ? nullptr : plan_->FindBlock(-1, block);
    if (planned != nullptr && planned->option >= 0) return planned->option;
    return memory_limit_bytes_ == -1 ? static_cast<int32_t>(measurements_.options().NumOptions(block)) - 1 : 0;
  };
  return measurements_.ToText(actions_of, option_of);
}

std::map<std::string, std::vector<SiteInfo>> Session::Sites() const {
  const std::lock_guard lock(mutex_);
  return measurements_.Sites();
}

std::map<std::string, int64_t> Session::Demotions() const {
  const std::lock_guard lock(mutex_);
  return demotions_;
}

void Session::Impose(std::shared_ptr<const HeldPlan> plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

std::map<std::string, int64_t> Session::PassedThrough() const {
  const std::lock_guard lock(mutex_);
  return passed_through_;
}

}  // namespace tidetape::agent
