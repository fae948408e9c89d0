#include "agent/session/session.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "agent/measure/meter.h"
#include "agent/measure/step_profile.h"
#include "agent/tape/intercept.h"
#include "agent/tape/recorder.h"
#include "agent/tape/saved_hooks.h"

namespace tidetape::agent {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// A plan is made of the largest of this many steady steps: collectives free their buffers when they get to it, so steps differ.
constexpr int32_t kSteadyProfiles = 3;
// The margin on top: the largest difference seen between two steps in one interval, but no more than this share of the step's peak.
constexpr double kLargestMargin = 0.01;
// Every step is profiled at first and after a switch, later every so many.
constexpr int64_t kProfiledSteps = 8;
constexpr int64_t kProfiledStepsAfterSwitch = 4;
constexpr int64_t kProfilePeriod = 64;
// Candidates that ranks may still agree on.
constexpr size_t kCandidates = 8;

}  // namespace

Session::Session(int64_t memory_limit_bytes) : memory_limit_bytes_(memory_limit_bytes), step_start_(Clock::now()) {
  keep_all_.save_by_default = true;
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
  if (meter::LiveBytes() + actions->saved_bytes > plan_->memory_limit_bytes) {
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
  if (open_tapes_ == 0 && (position_ == 0 || number == first_block_)) {
    // A forward pass begins; several of them make one step under gradient accumulation.
    position_ = 0;
    first_block_ = number;
    names_.clear();
    const std::lock_guard lock(mutex_);
    running_.saved_bytes = 0;
  }
  const int32_t position = position_++;
  names_.push_back(block->name());
  auto tape = c10::make_intrusive<Tape>(block, position, shared_from_this());
  StepProfile& profile = StepProfile::Get();
  tape->measured_costs = profile.profiling();
  profile.ForwardBegins(position);
  Recorder::OfThisThread().set_auditing(audit_ && !std::exchange(block->audited, true));
  Recorder::OfThisThread().Begin(std::move(tape), ActionsFor(position, *block), inputs);
  SetIntercepting(true);
  return true;
}

void Session::EndBlock() {
  SetIntercepting(false);
  const TapePtr tape = Recorder::OfThisThread().End();
  StepProfile::Get().ForwardEnds();
  ++open_tapes_;
  {
    const std::lock_guard lock(mutex_);
    running_.saved_bytes += tape->saved_bytes;
    running_.recorded_ops += static_cast<int64_t>(tape->ops.size());
    running_.bookkeeping_bytes += tape->BookkeepingBytes();
    running_.demoted_ops += static_cast<int64_t>(std::count_if(
        tape->storages.begin(), tape->storages.end(), [](const StorageRecord& s) { return s.must_save && s.handles > 0; }));
  }
  if (tape->live_handles == 0) tape->Close();
}

void Session::OnBackwardEnd(Tape& tape) {
  const bool others = --open_tapes_ > 0;
  StepProfile::Get().BackwardEnds(tape.position, others);
  const std::lock_guard lock(mutex_);
  running_.replay_seconds += tape.replay_seconds;
  running_.replayed_ops += tape.replayed_ops;
  if (!tape.measured_costs || !tape.backward_begun) return;
  const auto [structure, is_new] = structures_.try_emplace(tape.structure_hash, tape);
  structure->second.AddCosts(tape);
}

void Session::OnAbandoned(Tape&) { --open_tapes_; }

bool Session::Steady() const {
  // The optimizer's state exists once it has stepped; a loop without an optimizer is taken as steady after three steps.
  return step_ >= 1 && (optimizer_steps_before_ > 0 || step_ >= 3);
}

bool Session::ProfileNext() const {
  return step_ < kProfiledSteps || step_ < activated_at_ + kProfiledStepsAfterSwitch || step_ % kProfilePeriod == 0;
}

void Session::MergeProfile(StepMemory& memory) {
  head_peak_bytes_ = std::max(head_peak_bytes_, memory.head_peak_bytes);
  outside_peak_bytes_ = std::max(outside_peak_bytes_, memory.outside_peak_bytes);
  instances_.resize(std::min(memory.instances.size(), names_.size()));
  for (size_t i = 0; i < instances_.size(); ++i) {
    Instance& merged = instances_[i];
    InstanceProfile& seen = memory.instances[i];
    merged.name = names_[i];
    if (!seen.complete) continue;
    seen.forward_peak_bytes = std::max(seen.forward_peak_bytes, merged.profile.forward_peak_bytes);
    if (merged.profile.structure_hash == seen.structure_hash && SameMarks(merged.profile.marks, seen.marks)) {
      for (size_t m = 0; m < seen.marks.size(); ++m) {
        spread_bytes_ = std::max(spread_bytes_, std::abs(seen.marks[m].peak_bytes - merged.profile.marks[m].peak_bytes));
        seen.marks[m].peak_bytes = std::max(seen.marks[m].peak_bytes, merged.profile.marks[m].peak_bytes);
        seen.marks[m].start_bytes = std::max(seen.marks[m].start_bytes, merged.profile.marks[m].start_bytes);
      }
    }
    merged.profile = std::move(seen);
  }
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
  StepMemory memory = StepProfile::Get().FinishStep(ProfileNext());
  stats.step_peak_bytes = memory.step_peak_bytes;
  stats.live_bytes = memory.live_bytes;
  const bool report_profile = profiled && steady && !names_.empty();
  if (report_profile) {
    MergeProfile(memory);
    ++steady_profiles_;
  }
  Report(stats, report_profile && steady_profiles_ >= kSteadyProfiles);
  position_ = 0;
  optimizer_steps_before_ = optimizer_steps_.load(std::memory_order_relaxed);
  TakeCandidate();
  return stats;
}

void Session::Report(const StepStats& stats, bool profiled) {
  if (link_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  const int64_t margin = std::min(spread_bytes_, static_cast<int64_t>(kLargestMargin * static_cast<double>(stats.step_peak_bytes)));
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

  std::vector<tt_profiled_block> blocks;
  std::vector<std::vector<int64_t>> event_bytes;
  std::vector<tt_tape_costs> costs;
  std::vector<std::vector<double>> cost_seconds;
  if (profiled && memory_limit_bytes_ >= 0) {
    event_bytes.reserve(2 * instances_.size());
    bool complete = !instances_.empty();
    for (const Instance& instance : instances_) {
      const std::vector<BackwardMark>& marks = instance.profile.marks;
      const auto structure = structures_.find(instance.profile.structure_hash);
      if (structure == structures_.end() || marks.empty()) {
        complete = false;
        continue;
      }
      const int64_t base = marks.front().start_bytes;
      if (!structure->second.sent) {
        structure->second.marks = marks;
        structure->second.sent = structure->second.Send(library_->put_tape, link_, marks, base) == TT_LINK_OK;
      }
      tt_profiled_block block = {};
      block.name = instance.name.c_str();
      block.structure_hash = instance.profile.structure_hash;
      block.forward_base_bytes = instance.profile.forward_peak_bytes + margin;
      block.backward_base_bytes = base + margin;
      std::vector<int64_t> gradients, starts;
      for (const BackwardMark& mark : marks) {
        gradients.push_back(std::max<int64_t>(0, mark.peak_bytes - base));
        starts.push_back(std::max<int64_t>(0, mark.start_bytes - base));
      }
      block.backward_transient_bytes = *std::max_element(gradients.begin(), gradients.end());
      if (SameMarks(marks, structure->second.marks)) {
        event_bytes.push_back(std::move(gradients));
        event_bytes.push_back(std::move(starts));
        block.gradient_live_bytes = event_bytes[event_bytes.size() - 2].data();
        block.start_live_bytes = event_bytes.back().data();
        block.num_events = marks.size();
      }
      blocks.push_back(block);
    }
    cost_seconds.reserve(structures_.size());
    for (const auto& [hash, structure] : structures_) {
      if (!structure.sent) continue;
      cost_seconds.push_back(structure.Costs());
      tt_tape_costs entry = {};
      entry.structure_hash = hash;
      entry.cost_seconds = cost_seconds.back().data();
      entry.replay_workspace_bytes = structure.workspaces().data();
      entry.num_ops = cost_seconds.back().size();
      costs.push_back(entry);
    }
    report.has_profile = complete;
    report.steady = complete;
    report.blocks = blocks.data();
    report.num_blocks = blocks.size();
    report.head_peak_bytes = head_peak_bytes_ + margin;
    report.optimizer_peak_bytes = outside_peak_bytes_ + margin;
    report.costs = costs.data();
    report.num_costs = costs.size();
  }
  library_->report_step(link_, &report);
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

void Session::Connect(const LinkOptions& options) {
  if (link_ != nullptr) throw std::runtime_error("tidetape: the session has a planner already");
  library_ = &LoadLinkLibrary(options.library);
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
  std::string text;
  for (const auto& [hash, structure] : structures_) text += structure.ToText();
  return text;
}

std::map<std::string, int64_t> Session::PassedThrough() const {
  const std::lock_guard lock(mutex_);
  return passed_through_;
}

}  // namespace tidetape::agent
