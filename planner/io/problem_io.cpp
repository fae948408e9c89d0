#include "planner/io/problem_io.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "planner/io/plain_json.h"
#include "planner/job/site_plan.h"

namespace tidetape::planner {
namespace {

template <typename T, typename Field>
std::vector<T> ToVector(const Field& field) {
  return {field.begin(), field.end()};
}

template <typename T, typename Field>
void SetField(const std::vector<T>& values, Field* field) {
  field->Assign(values.begin(), values.end());
}

StorageKind FromProto(v1::Storage::Kind kind) {
  switch (kind) {
    case v1::Storage::KIND_BLOCK_INPUT:
      return StorageKind::kBlockInput;
    case v1::Storage::KIND_PARAMETER:
      return StorageKind::kParameter;
    default:
      return StorageKind::kIntermediate;
  }
}

v1::Storage::Kind ToProto(StorageKind kind) {
  switch (kind) {
    case StorageKind::kBlockInput:
      return v1::Storage::KIND_BLOCK_INPUT;
    case StorageKind::kParameter:
      return v1::Storage::KIND_PARAMETER;
    case StorageKind::kIntermediate:
      break;
  }
  return v1::Storage::KIND_INTERMEDIATE;
}

Storage FromProto(const v1::Storage& proto) {
  return {.bytes = proto.bytes(),
          .kind = FromProto(proto.kind()),
          .must_save = proto.must_save(),
          .must_recompute = proto.must_recompute(),
          .held_anyway = proto.held_anyway(),
          .site = proto.site(),
          .label = proto.label(),
          .sampled_bytes = ToVector<int64_t>(proto.sampled_bytes())};
}

Op FromProto(const v1::Op& proto) {
  return {.name = proto.name(),
          .cost_seconds = proto.cost_seconds(),
          .reads = ToVector<int32_t>(proto.reads()),
          .writes = ToVector<int32_t>(proto.writes()),
          .replayable = proto.replayable(),
          .replay_workspace_bytes = proto.replay_workspace_bytes()};
}

BackwardEvent FromProto(const v1::BackwardEvent& proto) {
  return {.reads = ToVector<int32_t>(proto.reads()),
          .releases = ToVector<int32_t>(proto.releases()),
          .gradient_live_bytes = proto.gradient_live_bytes(),
          .start_live_bytes = proto.start_live_bytes()};
}

}  // namespace

Headroom FromProto(const v1::Headroom& proto) {
  return {.block_bytes = proto.block_bytes(), .head_bytes = proto.head_bytes(), .optimizer_bytes = proto.optimizer_bytes()};
}

v1::Headroom ToProto(const Headroom& headroom) {
  v1::Headroom proto;
  proto.set_block_bytes(headroom.block_bytes);
  proto.set_head_bytes(headroom.head_bytes);
  proto.set_optimizer_bytes(headroom.optimizer_bytes);
  return proto;
}

v1::PeakHolder ToProto(const PlanningProblem& problem, const PeakHolder& holder) {
  v1::PeakHolder proto;
  switch (holder.phase) {
    case Phase::kForward:
      proto.set_phase(v1::PeakHolder::PHASE_FORWARD);
      break;
    case Phase::kHead:
      proto.set_phase(v1::PeakHolder::PHASE_HEAD);
      break;
    case Phase::kBackward:
      proto.set_phase(v1::PeakHolder::PHASE_BACKWARD);
      break;
    case Phase::kOptimizer:
      proto.set_phase(v1::PeakHolder::PHASE_OPTIMIZER);
      break;
  }
  if (holder.block >= 0) {
    proto.set_block(holder.block);
    proto.set_name(problem.blocks[holder.block].name);
  }
  return proto;
}

BlockTape FromProto(const v1::BlockTape& proto) {
  BlockTape tape;
  tape.name = proto.name();
  tape.structure_hash = proto.structure_hash();
  tape.storages.reserve(proto.storages_size());
  tape.ops.reserve(proto.ops_size());
  for (const auto& storage : proto.storages()) tape.storages.push_back(FromProto(storage));
  for (const auto& op : proto.ops()) tape.ops.push_back(FromProto(op));
  tape.consumed = ToVector<int32_t>(proto.consumed());
  for (const auto& value : proto.values()) {
    tape.values.push_back({.storage = value.storage(), .version = value.version(), .copy_seconds = value.copy_seconds()});
  }
  for (const auto& event : proto.backward()) tape.backward.push_back(FromProto(event));
  tape.forward_slack_bytes = ToVector<int64_t>(proto.forward_slack_bytes());
  return tape;
}

BlockInstance FromProto(const v1::BlockInstance& proto) {
  BlockInstance instance;
  instance.name = proto.name();
  instance.tape = proto.tape();
  for (const auto& option : proto.options()) {
    instance.options.push_back({.saved_bytes = option.saved_bytes(),
                                .own_peak_bytes = option.own_peak_bytes(),
                                .seconds = option.seconds(),
                                .label = option.label()});
  }
  instance.forward_base_bytes = proto.forward_base_bytes();
  instance.backward_base_bytes = proto.backward_base_bytes();
  instance.backward_transient_bytes = proto.backward_transient_bytes();
  instance.gradient_live_bytes = ToVector<int64_t>(proto.gradient_live_bytes());
  instance.start_live_bytes = ToVector<int64_t>(proto.start_live_bytes());
  instance.held_inputs = ToVector<int32_t>(proto.held_inputs());
  return instance;
}

ScheduledPart FromProto(const v1::ScheduledPart& proto) {
  // An unknown phase becomes one that no schedule has, so that checking the problem names it.
  ScheduledPart part{.phase = Phase::kOptimizer, .block = proto.block()};
  switch (proto.phase()) {
    case v1::ScheduledPart::PHASE_FORWARD:
      part.phase = Phase::kForward;
      break;
    case v1::ScheduledPart::PHASE_HEAD:
      part = {.phase = Phase::kHead};
      break;
    case v1::ScheduledPart::PHASE_BACKWARD:
      part.phase = Phase::kBackward;
      break;
    default:
      break;
  }
  return part;
}

PlanningProblem FromProto(const v1::PlanningProblem& proto) {
  PlanningProblem problem;
  problem.memory_limit_bytes = proto.memory_limit_bytes();
  for (const auto& tape : proto.tapes()) problem.tapes.push_back(FromProto(tape));
  for (const auto& block : proto.blocks()) problem.blocks.push_back(FromProto(block));
  problem.head_peak_bytes = proto.head_peak_bytes();
  problem.optimizer_peak_bytes = proto.optimizer_peak_bytes();
  problem.host_bytes_limit = proto.host_bytes_limit();
  problem.host_bytes_per_second = proto.host_bytes_per_second();
  for (const auto& part : proto.schedule()) problem.schedule.push_back(FromProto(part));
  problem.headroom = FromProto(proto.headroom());
  return problem;
}

v1::BlockTape ToProto(const BlockTape& tape) {
  v1::BlockTape proto;
  proto.set_name(tape.name);
  proto.set_structure_hash(tape.structure_hash);
  for (const Storage& storage : tape.storages) {
    v1::Storage* to = proto.add_storages();
    to->set_bytes(storage.bytes);
    to->set_kind(ToProto(storage.kind));
    to->set_must_save(storage.must_save);
    to->set_must_recompute(storage.must_recompute);
    to->set_held_anyway(storage.held_anyway);
    to->set_site(storage.site);
    to->set_label(storage.label);
    SetField(storage.sampled_bytes, to->mutable_sampled_bytes());
  }
  for (const Op& op : tape.ops) {
    v1::Op* to = proto.add_ops();
    to->set_name(op.name);
    to->set_cost_seconds(op.cost_seconds);
    SetField(op.reads, to->mutable_reads());
    SetField(op.writes, to->mutable_writes());
    to->set_replayable(op.replayable);
    to->set_replay_workspace_bytes(op.replay_workspace_bytes);
  }
  SetField(tape.consumed, proto.mutable_consumed());
  for (const Value& value : tape.values) {
    v1::Value* to = proto.add_values();
    to->set_storage(value.storage);
    to->set_version(value.version);
    to->set_copy_seconds(value.copy_seconds);
  }
  for (const BackwardEvent& event : tape.backward) {
    v1::BackwardEvent* to = proto.add_backward();
    SetField(event.reads, to->mutable_reads());
    SetField(event.releases, to->mutable_releases());
    to->set_gradient_live_bytes(event.gradient_live_bytes);
    to->set_start_live_bytes(event.start_live_bytes);
  }
  SetField(tape.forward_slack_bytes, proto.mutable_forward_slack_bytes());
  return proto;
}

v1::BlockInstance ToProto(const BlockInstance& instance) {
  v1::BlockInstance proto;
  proto.set_name(instance.name);
  proto.set_tape(instance.tape);
  for (const BlockOption& option : instance.options) {
    v1::BlockOption* to = proto.add_options();
    to->set_saved_bytes(option.saved_bytes);
    to->set_own_peak_bytes(option.own_peak_bytes);
    to->set_seconds(option.seconds);
    to->set_label(option.label);
  }
  proto.set_forward_base_bytes(instance.forward_base_bytes);
  proto.set_backward_base_bytes(instance.backward_base_bytes);
  proto.set_backward_transient_bytes(instance.backward_transient_bytes);
  SetField(instance.gradient_live_bytes, proto.mutable_gradient_live_bytes());
  SetField(instance.start_live_bytes, proto.mutable_start_live_bytes());
  SetField(instance.held_inputs, proto.mutable_held_inputs());
  return proto;
}

v1::ScheduledPart ToProto(const ScheduledPart& part) {
  v1::ScheduledPart proto;
  switch (part.phase) {
    case Phase::kForward:
      proto.set_phase(v1::ScheduledPart::PHASE_FORWARD);
      break;
    case Phase::kHead:
      proto.set_phase(v1::ScheduledPart::PHASE_HEAD);
      return proto;
    case Phase::kBackward:
      proto.set_phase(v1::ScheduledPart::PHASE_BACKWARD);
      break;
    case Phase::kOptimizer:
      break;
  }
  proto.set_block(part.block);
  return proto;
}

v1::PlanningProblem ToProto(const PlanningProblem& problem) {
  v1::PlanningProblem proto;
  proto.set_memory_limit_bytes(problem.memory_limit_bytes);
  for (const BlockTape& tape : problem.tapes) *proto.add_tapes() = ToProto(tape);
  for (const BlockInstance& block : problem.blocks) *proto.add_blocks() = ToProto(block);
  proto.set_head_peak_bytes(problem.head_peak_bytes);
  proto.set_optimizer_peak_bytes(problem.optimizer_peak_bytes);
  proto.set_host_bytes_limit(problem.host_bytes_limit);
  proto.set_host_bytes_per_second(problem.host_bytes_per_second);
  for (const ScheduledPart& part : problem.schedule) *proto.add_schedule() = ToProto(part);
  *proto.mutable_headroom() = ToProto(problem.headroom);
  return proto;
}

v1::FrontierPoint ToProto(const FrontierPoint& point) {
  v1::FrontierPoint proto;
  proto.set_bytes(point.bytes);
  proto.set_replay_seconds(point.replay_seconds);
  SetField(point.saved, proto.mutable_saved());
  return proto;
}

v1::Plan ToProto(const PlanningProblem& problem, const StepPlan& plan) {
  v1::Plan proto;
  proto.set_memory_limit_bytes(problem.memory_limit_bytes);
  const std::vector<BlockSites> named = NameBySites(problem, plan);
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const BlockPlan& block = plan.blocks[b];
    const BlockInstance& instance = problem.blocks[b];
    v1::BlockPlan* to = proto.add_blocks();
    to->set_block(static_cast<int32_t>(b));
    to->set_name(instance.name);
    to->set_option(block.option);
    to->set_saved_bytes(block.saved_bytes);
    to->set_replay_seconds(block.replay_seconds);
    to->set_own_peak_bytes(block.own_peak_bytes);
    to->set_moved_bytes(block.moved_bytes);
    to->set_moved_input_bytes(block.moved_input_bytes);
    to->set_move_seconds(block.move_seconds);
    SetField(block.saved, to->mutable_saved());
    SetField(block.replayed, to->mutable_replayed());
    SetField(block.moved, to->mutable_moved());
    // planner::Action is numbered as the message's.
    to->set_default_action(static_cast<v1::Action>(named[b].default_action));
    if (block.option >= 0) to->set_option_label(instance.options[block.option].label);
    if (!instance.options.empty()) continue;
    to->set_structure_hash(problem.tapes[instance.tape].structure_hash);
    for (const SiteAction& action : named[b].sites) {
      v1::SiteAction* site = to->add_sites();
      site->set_site(action.site);
      site->set_action(static_cast<v1::Action>(action.action));
    }
  }
  proto.set_step_peak_bytes(plan.expected_peak_bytes);
  proto.set_headroom_bytes(plan.step_peak_bytes - plan.expected_peak_bytes);
  proto.set_replay_seconds(plan.replay_seconds);
  proto.set_saved_bytes(plan.saved_bytes);
  proto.set_moved_bytes(plan.moved_bytes);
  proto.set_move_seconds(plan.move_seconds);
  proto.set_lower_bound_seconds(plan.lower_bound_seconds);
  proto.set_gap_ratio(plan.gap_ratio);
  proto.set_feasible(plan.feasible);
  proto.set_least_peak_bytes(plan.least_peak_bytes);
  *proto.mutable_least_peak_holder() = ToProto(problem, plan.least_peak_holder);
  *proto.mutable_peak_holder() = ToProto(problem, plan.peak_holder);
  return proto;
}

absl::StatusOr<PlanningProblem> ParseProblem(std::string_view json) {
  v1::PlanningProblem proto;
  if (ReadPlainJson(json, proto)) return FromProto(proto);
  proto.Clear();
  const auto status = google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &proto);
  if (!status.ok()) {
    const auto text = status.message();
    return absl::InvalidArgumentError(absl::StrCat("not a planning problem: ", absl::string_view(text.data(), text.size())));
  }
  return FromProto(proto);
}

absl::StatusOr<PlanningProblem> ReadProblemFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const std::string json{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::StatusOr<PlanningProblem> problem = ParseProblem(json);
  if (!problem.ok()) return absl::Status(problem.status().code(), absl::StrCat(path, ": ", problem.status().message()));
  return problem;
}

std::string PrintProblem(const PlanningProblem& problem) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Any message of this type can be printed.
  (void)google::protobuf::util::MessageToJsonString(ToProto(problem), &json, options);
  return json;
}

}  // namespace tidetape::planner
