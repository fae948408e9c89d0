#include "server/ctl/compare_plans.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/ctl/table.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

using Stub = v1::PlannerService::Stub;

// Storages that are kept by `plan` and not by `other`; the label of an option that only `plan` runs by.
std::vector<std::string> KeptOnlyBy(const v1::BlockPlan& plan, const v1::BlockPlan& other, const LabelsByHash& labels) {
  if (!plan.option_label().empty()) {
    return plan.option_label() == other.option_label() ? std::vector<std::string>() : std::vector{plan.option_label()};
  }
  std::vector<int32_t> storages;
  std::set_difference(plan.saved().begin(), plan.saved().end(), other.saved().begin(), other.saved().end(),
                      std::back_inserter(storages));
  const auto known = labels.find(plan.structure_hash());
  std::vector<std::string> names;
  for (const int32_t storage : storages) {
    const bool named =
        known != labels.end() && static_cast<size_t>(storage) < known->second.size() && !known->second[storage].empty();
    names.push_back(named ? known->second[storage] : absl::StrCat("storage ", storage));
  }
  return names;
}

bool SameChoices(const v1::BlockPlan& a, const v1::BlockPlan& b) {
  return a.structure_hash() == b.structure_hash() && a.option() == b.option() && a.saved_size() == b.saved_size() &&
         std::equal(a.saved().begin(), a.saved().end(), b.saved().begin());
}

struct NamedPlan {
  std::string job;
  std::optional<int64_t> generation;
};

// "train@3" is generation 3 of train; a name may hold an @ of its own where no number follows.
NamedPlan ParseNamedPlan(const std::string& text) {
  const size_t at = text.rfind('@');
  int64_t generation = 0;
  if (at == std::string::npos || !absl::SimpleAtoi(text.substr(at + 1), &generation)) return {text, std::nullopt};
  return {text.substr(0, at), generation};
}

absl::StatusOr<v1::Plan> Fetch(Client& client, const NamedPlan& named) {
  v1::GetPlanRequest request;
  request.set_job(named.job);
  if (named.generation.has_value()) request.set_generation(*named.generation);
  auto response = client.Call(&Stub::GetPlan, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_plan());
}

absl::StatusOr<v1::Plan> FetchBefore(Client& client, const v1::Plan& plan) {
  v1::ListPlansRequest request;
  request.set_job(plan.job());
  const auto response = client.Call(&Stub::ListPlans, request);
  if (!response.ok()) return response.status();
  for (const v1::Plan& older : response->plans()) {
    if (older.generation() < plan.generation()) return Fetch(client, {plan.job(), older.generation()});
  }
  return absl::FailedPreconditionError(absl::StrCat("job '", plan.job(), "' has no plan before generation ", plan.generation()));
}

// Names for people; a job that cannot tell its problem at the moment has none.
LabelsByHash FetchLabels(Client& client, const std::string& job) {
  LabelsByHash labels;
  v1::GetProblemRequest request;
  request.set_job(job);
  if (const auto response = client.Call(&Stub::GetProblem, request); response.ok()) {
    for (const v1::BlockTape& tape : response->problem().tapes()) {
      std::vector<std::string>& of_tape = labels[tape.structure_hash()];
      for (const v1::Storage& storage : tape.storages()) of_tape.push_back(storage.label());
    }
  }
  return labels;
}

std::string Signed(int64_t bytes) { return absl::StrCat(bytes > 0 ? "+" : "", FormatBytes(bytes)); }
std::string Signed(double seconds) { return absl::StrCat(seconds > 0 ? "+" : "", FormatSeconds(seconds)); }

void PrintText(const v1::Plan& before, const v1::Plan& after, const std::vector<BlockDifference>& blocks, std::ostream& out) {
  const auto title = [](const v1::Plan& plan) { return absl::StrCat(plan.job(), "@", plan.generation()); };
  Table table({"", title(before), title(after), "CHANGE"});
  const auto bytes = [&table](const char* name, int64_t a, int64_t b) {
    table.Add({name, FormatBytes(a), FormatBytes(b), Signed(b - a)});
  };
  table.Add({"limit", FormatLimit(before.memory_limit_bytes()), FormatLimit(after.memory_limit_bytes()), ""});
  bytes("step peak", before.step_peak_bytes(), after.step_peak_bytes());
  bytes("saved", before.saved_bytes(), after.saved_bytes());
  if (before.moved_bytes() > 0 || after.moved_bytes() > 0) bytes("moved", before.moved_bytes(), after.moved_bytes());
  table.Add({"replay", FormatSeconds(before.replay_seconds()), FormatSeconds(after.replay_seconds()),
             Signed(after.replay_seconds() - before.replay_seconds())});
  table.Add({"gap", absl::StrFormat("%.3g %%", 100 * before.gap_ratio()), absl::StrFormat("%.3g %%", 100 * after.gap_ratio()), ""});
  table.Add({"blocks", absl::StrCat(before.blocks_size()), absl::StrCat(after.blocks_size()), ""});
  table.Print(out);
  out << "\n";
  if (blocks.empty()) {
    out << "all blocks keep the same\n";
    return;
  }
  Table differences({"BLOCK", "SAVED", "REPLAY", "NEWLY KEPT", "NO LONGER KEPT"});
  for (const BlockDifference& block : blocks) {
    const v1::BlockPlan none;
    const v1::BlockPlan& a = block.before == nullptr ? none : *block.before;
    const v1::BlockPlan& b = block.after == nullptr ? none : *block.after;
    const auto list = [](const std::vector<std::string>& names) { return names.empty() ? "-" : absl::StrJoin(names, ", "); };
    differences.Add({block.name, absl::StrCat(FormatBytes(a.saved_bytes()), " -> ", FormatBytes(b.saved_bytes())),
                     absl::StrCat(FormatSeconds(a.replay_seconds()), " -> ", FormatSeconds(b.replay_seconds())),
                     list(block.newly_kept), list(block.no_longer_kept)});
  }
  differences.Print(out);
}

std::string JsonList(const std::vector<std::string>& names) {
  return absl::StrCat(
      "[", absl::StrJoin(names, ",", [](std::string* out, const std::string& name) { absl::StrAppend(out, JsonString(name)); }),
      "]");
}

// {"before": Plan, "after": Plan, "blocks": [...]}; plans and blocks as the contract has them, plans without their blocks.
void PrintJson(const v1::Plan& before, const v1::Plan& after, const std::vector<BlockDifference>& blocks, std::ostream& out) {
  const OutputFormat line{OutputFormat::kJson, /*one_line=*/true};
  const auto of_message = [&line](const google::protobuf::Message& message) {
    std::string json = ToJson(message, line);
    json.pop_back();
    return json;
  };
  const auto without_blocks = [&](v1::Plan plan) {
    plan.clear_blocks();
    return of_message(plan);
  };
  const auto block_json = [&](std::string* json, const BlockDifference& block) {
    absl::StrAppend(json, "{\"name\":", JsonString(block.name),
                    ",\"before\":", block.before == nullptr ? "null" : of_message(*block.before),
                    ",\"after\":", block.after == nullptr ? "null" : of_message(*block.after),
                    ",\"newly_kept\":", JsonList(block.newly_kept), ",\"no_longer_kept\":", JsonList(block.no_longer_kept), "}");
  };
  out << "{\"before\":" << without_blocks(before) << ",\"after\":" << without_blocks(after) << ",\"blocks\":["
      << absl::StrJoin(blocks, ",", block_json) << "]}\n";
}

}  // namespace

std::vector<BlockDifference> ComparePlans(const v1::Plan& before, const v1::Plan& after, const LabelsByHash& labels) {
  std::vector<BlockDifference> differences;
  for (int i = 0; i < std::max(before.blocks_size(), after.blocks_size()); ++i) {
    BlockDifference block;
    if (i < before.blocks_size()) block.before = &before.blocks(i);
    if (i < after.blocks_size()) block.after = &after.blocks(i);
    block.name = (block.after != nullptr ? block.after : block.before)->name();
    if (block.before != nullptr && block.after != nullptr) {
      if (SameChoices(*block.before, *block.after)) continue;
      if (block.before->structure_hash() == block.after->structure_hash()) {
        block.newly_kept = KeptOnlyBy(*block.after, *block.before, labels);
        block.no_longer_kept = KeptOnlyBy(*block.before, *block.after, labels);
      }
    }
    differences.push_back(std::move(block));
  }
  return differences;
}

absl::Status Compare(const Arguments& arguments, std::ostream& out) {
  Client client = MakeClient(arguments);
  const auto first = Fetch(client, ParseNamedPlan(arguments.job));
  if (!first.ok()) return first.status();
  const bool two = !arguments.other_job.empty();
  const auto second = two ? Fetch(client, ParseNamedPlan(arguments.other_job)) : FetchBefore(client, *first);
  if (!second.ok()) return second.status();
  const v1::Plan& before = two ? *first : *second;
  const v1::Plan& after = two ? *second : *first;
  const std::vector<BlockDifference> blocks = ComparePlans(before, after, FetchLabels(client, after.job()));
  if (arguments.output.json()) {
    PrintJson(before, after, blocks, out);
  } else {
    PrintText(before, after, blocks, out);
  }
  return absl::OkStatus();
}

}  // namespace tidetape::ctl
