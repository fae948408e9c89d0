#include "agent/session/measurements.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/tape/block.h"

namespace tidetape::agent {
namespace {

// A plan is made of the largest of this many steady steps: collectives free their buffers when they get to it, so steps differ.
// Where each step still brings new ops or larger values it takes more.
constexpr int32_t kSteadyProfiles = 3;
constexpr int32_t kVaryingProfiles = 7;
// The margin on top: the largest difference seen between two steps in that part of the step (at one place of a block), but no more
// than this share of the step's peak.
constexpr double kLargestMargin = 0.01;
constexpr double kLargestVaryingMargin = 0.10;

// As of mixtures of experts that run one by one: blocks with equal ops then differ in sizes.
bool SizedByData(const Tape& tape) {
  return std::any_of(tape.ops.begin(), tape.ops.end(), [](const OpRecord& op) { return op.facts->data_sized; });
}

}  // namespace

void Measurements::AddTape(const Tape& tape) {
  std::shared_ptr<MergedTape>& merged = tape_of_block_[tape.block->name()];
  if (merged == nullptr) {
    const std::string& name = tape.block->name();
    const uint64_t own = SizedByData(tape) ? HashText(name) : 0;
    std::shared_ptr<MergedTape>& equal = tapes_[{tape.structure_hash, own}];
    if (equal == nullptr) equal = std::make_shared<MergedTape>(name, own);
    merged = equal;
  }
  const size_t known = merged->sites().size();
  const bool larger = merged->Add(tape);
  if (profiles_ == 0) return;
  news_ |= merged->sites().size() > known;
  varying_ |= larger;
}

void Measurements::AddProfile(const StepMemory& memory, const std::vector<std::string>& names, const HeldInputs& held) {
  if (profiles_++ > 0 && news_) varying_ = true;
  news_ = false;
  head_.Add(memory.head_peak_bytes);
  outside_.Add(memory.outside_peak_bytes);
  instances_.resize(std::min(memory.instances.size(), names.size()));
  schedule_ = ScheduleOf(memory.order, instances_.size());
  for (size_t i = 0; i < instances_.size(); ++i) {
    Instance& instance = instances_[i];
    const InstanceProfile& seen = memory.instances[i];
    const std::vector<Site> inputs = held.At(static_cast<int32_t>(i));
    if (instance.name != names[i]) instance = {names[i], 0, 0, {}, inputs};
    instance.held_inputs = HeldInputs::Common(instance.held_inputs, inputs);
    if (!seen.complete) continue;
    instance.forward_start_bytes = std::max(instance.forward_start_bytes, seen.forward_start_bytes);
    instance.forward_peak_bytes = std::max(instance.forward_peak_bytes, seen.forward_peak_bytes);
    const int64_t spread = instance.marks.Add(seen.marks);
    // Peaks of blocks with options differ from step to step with what is tried.
    if (!options_.Has(instance.name)) spread_bytes_ = std::max(spread_bytes_, spread);
  }
}

bool Measurements::ready() const { return profiles_ >= (varying_ ? kVaryingProfiles : kSteadyProfiles) && options_.measured(); }

bool Measurements::wants_sending() const {
  return std::any_of(tape_of_block_.begin(), tape_of_block_.end(), [](const auto& entry) { return entry.second->wants_sending(); });
}

MarkSequence Measurements::MarksOf(const MergedTape& tape) const {
  MarkSequence marks;
  for (const Instance& instance : instances_) {
    const auto found = tape_of_block_.find(instance.name);
    if (found != tape_of_block_.end() && found->second.get() == &tape) marks.Add(instance.marks);
  }
  return marks;
}

tt_profiled_block Measurements::ReportOptions(const Instance& instance, int64_t margin, ProfileReport& report) const {
  const int64_t backward_base = instance.marks.marks().front().start_bytes;
  const auto [least, most] = options_.ForwardBytes(instance.name);
  tt_profiled_block block = {};
  block.name = instance.name.c_str();
  block.structure_hash = options_.Structure(instance.name);
  // Under a schedule other blocks are alive in forward than in backward: the forward base must then hold for every option by
  // itself.
  const bool usual_order = schedule_.empty();
  block.forward_base_bytes = instance.forward_start_bytes + (usual_order ? least : most) + margin;
  block.backward_base_bytes = backward_base + margin;
  std::optional<int64_t> forward_start;
  if (usual_order) forward_start = instance.forward_start_bytes - backward_base;
  report.options.push_back(options_.Report(instance.name, forward_start));
  block.options = report.options.back().data();
  block.num_options = report.options.back().size();
  return block;
}

ProfileReport Measurements::Report(const LinkLibrary& library, tt_link* link, int64_t step_peak_bytes) {
  const double share = varying_ ? kLargestVaryingMargin : kLargestMargin;
  const auto most_margin = static_cast<int64_t>(share * static_cast<double>(step_peak_bytes));
  const int64_t margin = std::min(spread_bytes_, most_margin);
  ProfileReport report;
  report.complete = !instances_.empty();
  report.block_headroom_bytes = margin;
  report.head_headroom_bytes = std::min(head_.spread(), most_margin);
  report.outside_headroom_bytes = std::min(outside_.spread(), most_margin);
  report.head_peak_bytes = head_.most() + report.head_headroom_bytes;
  report.outside_peak_bytes = outside_.most() + report.outside_headroom_bytes;
  report.schedule = schedule_;
  std::vector<MergedTape*> tapes;
  for (const Instance& instance : instances_) {
    const auto found = tape_of_block_.find(instance.name);
    const bool known = options_.Has(instance.name) ? options_.measured() : found != tape_of_block_.end();
    if (!known || instance.marks.empty()) {
      report.complete = false;
      continue;
    }
    if (options_.Has(instance.name)) continue;
    MergedTape& tape = *found->second;
    if (std::find(tapes.begin(), tapes.end(), &tape) == tapes.end()) tapes.push_back(&tape);
  }
  report.early = !ready();
  for (MergedTape* tape : tapes) {
    const MarkSequence marks = MarksOf(*tape);
    if (tape->wants_sending() || (sent_early_ && !report.early && tape->outdated(marks))) tape->Send(library.put_tape, link, marks);
  }
  sent_early_ = report.early;
  for (const Instance& instance : instances_) {
    if (instance.marks.empty()) continue;
    if (options_.Has(instance.name)) {
      report.blocks.push_back(ReportOptions(instance, margin, report));
      continue;
    }
    const auto found = tape_of_block_.find(instance.name);
    if (found == tape_of_block_.end()) continue;
    const MergedTape& tape = *found->second;
    const int64_t base = instance.marks.marks().front().start_bytes;
    std::vector<int64_t> peaks, starts;
    tape.EventBytes(instance.marks, base, peaks, starts);
    tt_profiled_block block = {};
    block.name = instance.name.c_str();
    block.structure_hash = tape.sent_hash();
    block.forward_base_bytes = instance.forward_peak_bytes + margin;
    block.backward_base_bytes = base + margin;
    block.backward_transient_bytes = peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
    report.bytes.push_back(std::move(peaks));
    block.gradient_live_bytes = report.bytes.back().data();
    block.num_events = report.bytes.back().size();
    report.bytes.push_back(std::move(starts));
    block.start_live_bytes = report.bytes.back().data();
    report.held_inputs.push_back(instance.held_inputs);
    block.held_inputs = report.held_inputs.back().data();
    block.num_held_inputs = report.held_inputs.back().size();
    report.blocks.push_back(block);
  }
  for (const MergedTape* tape : tapes) {
    if (tape->sent_hash() == 0) continue;
    report.seconds.push_back(tape->Costs());
    report.bytes.push_back(tape->Workspaces());
    tt_tape_costs entry = {};
    entry.structure_hash = tape->sent_hash();
    entry.cost_seconds = report.seconds.back().data();
    entry.replay_workspace_bytes = report.bytes.back().data();
    entry.num_ops = report.seconds.back().size();
    report.costs.push_back(entry);
  }
  return report;
}

std::map<std::string, std::vector<SiteInfo>> Measurements::Sites() const {
  std::map<std::string, std::vector<SiteInfo>> sites;
  for (const auto& [name, tape] : tape_of_block_) sites.emplace(name, tape->sites());
  return sites;
}

std::string Measurements::ToText(const std::function<const BlockActions*(const std::string& block)>& actions_of,
                                 const std::function<int32_t(const std::string& block)>& option_of) const {
  std::string text;
  for (const std::string& block : options_.Blocks()) text += options_.ToText(block, option_of(block));
  for (const auto& [name, tape] : tape_of_block_) text += tape->ToText(name, actions_of(name));
  return text;
}

}  // namespace tidetape::agent
