#include "server/ctl/what_if_commands.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/ctl/ask.h"
#include "server/ctl/table.h"
#include "server/ctl/target.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

using Stub = v1::PlannerService::Stub;

// "aten::mm*@layers.1?" as a pin of labels and blocks.
void AddPins(const std::vector<std::string>& wishes, v1::Action action, v1::PricePinsRequest& request) {
  for (const std::string& wish : wishes) {
    const size_t at = wish.find('@');
    v1::Pin* pin = request.add_pins();
    pin->set_action(action);
    pin->set_label_glob(wish.substr(0, at));
    if (at != std::string::npos) pin->set_block_glob(wish.substr(at + 1));
  }
}

void PrintPolicies(const v1::ComparePoliciesResponse& response, std::ostream& out) {
  Table table({"POLICY", "STEP PEAK", "REPLAY", "PLANNED AT THAT PEAK", "KEEPS THE LIMIT"});
  for (const v1::PolicyOutcome& outcome : response.policies()) {
    table.Add({outcome.policy(), FormatBytes(outcome.step_peak_bytes()), FormatSeconds(outcome.replay_seconds()),
               FormatSeconds(outcome.planned_seconds()), outcome.keeps_limit() ? "yes" : "no"});
  }
  table.Print(out);
}

void PrintPrice(const v1::PricePinsResponse& response, std::ostream& out) {
  Table table({"", "STEP PEAK", "SAVED", "REPLAY", "KEEPS THE LIMIT"});
  const auto add = [&table](const std::string& name, const v1::Plan& plan) {
    table.Add({name, FormatBytes(plan.step_peak_bytes()), FormatBytes(plan.saved_bytes()), FormatSeconds(plan.replay_seconds()),
               plan.feasible() ? "yes" : "no"});
  };
  add(absl::StrCat("with ", response.pinned_values(), " values pinned"), response.with());
  add("without", response.without());
  table.Print(out);
}

void PrintLargest(const v1::FindLargestSizeResponse& response, std::ostream& out) {
  out << "limit        " << FormatLimit(response.memory_limit_bytes()) << "\n";
  if (response.has_largest()) {
    out << "largest      " << response.axis() << " " << response.largest().size() << "\n";
  } else {
    out << "largest      none: not even " << response.axis() << " 1 fits\n";
  }
  out << "basis        " << response.basis() << "\n\n";
  Table table({absl::AsciiStrToUpper(response.axis()), "TOKENS", "STEP PEAK", "REPLAY", "STEP TIME", "TIME A TOKEN", ""});
  const auto add = [&](const v1::SizedStep& step, const std::string& how) {
    const bool timed = step.step_seconds() > 0;
    table.Add({absl::StrCat(step.size()), absl::StrCat(step.tokens()), FormatBytes(step.step_peak_bytes()),
               FormatSeconds(step.replay_seconds()), timed ? FormatSeconds(step.step_seconds()) : "-",
               timed ? FormatSeconds(step.seconds_per_token()) : "-",
               absl::StrCat(how, step.step_peak_bytes() > response.memory_limit_bytes() ? ", does not fit" : "")});
  };
  for (const v1::SizedStep& step : response.measured()) add(step, "measured");
  if (response.has_largest()) add(response.largest(), "fitted");
  table.Print(out);
}

}  // namespace

absl::Status Simulate(const Arguments& arguments, std::ostream& out) {
  v1::SimulatePlanRequest request;
  if (absl::Status status = FillRequest(arguments, request); !status.ok()) return status;
  const auto additional = ParseBytes(arguments.additional_base);
  if (!additional.ok()) return additional.status();
  request.set_additional_base_bytes(*additional);
  return Ask(arguments, &Stub::SimulatePlan, request, out,
             [&](const v1::SimulatePlanResponse& response) { PrintPlan(response.plan(), out); });
}

absl::Status Policies(const Arguments& arguments, std::ostream& out) {
  if (absl::Status status = CheckTarget(arguments); !status.ok()) return status;
  if (!arguments.file.empty()) {
    const auto question = QuestionOf(arguments);
    return question.ok() ? ComparePolicies(*question, out) : question.status();
  }
  v1::ComparePoliciesRequest request;
  if (absl::Status status = FillRequest(arguments, request); !status.ok()) return status;
  return Ask(arguments, &Stub::ComparePolicies, request, out,
             [&](const v1::ComparePoliciesResponse& response) { PrintPolicies(response, out); });
}

absl::Status Price(const Arguments& arguments, std::ostream& out) {
  if (absl::Status status = CheckTarget(arguments); !status.ok()) return status;
  if (!arguments.file.empty()) {
    const auto question = QuestionOf(arguments);
    return question.ok() ? PriceWishes(*question, arguments.saved, arguments.replayed, out) : question.status();
  }
  v1::PricePinsRequest request;
  if (absl::Status status = FillRequest(arguments, request); !status.ok()) return status;
  AddPins(arguments.saved, v1::ACTION_SAVE, request);
  AddPins(arguments.replayed, v1::ACTION_REPLAY, request);
  if (request.pins().empty()) return absl::InvalidArgumentError("name what is to be kept with --save or replayed with --replay");
  return Ask(arguments, &Stub::PricePins, request, out, [&](const v1::PricePinsResponse& response) { PrintPrice(response, out); });
}

absl::Status Largest(const Arguments& arguments, std::ostream& out) {
  v1::FindLargestSizeRequest request;
  if (absl::Status status = FillRequest(arguments, request); !status.ok()) return status;
  request.set_axis(arguments.axis);
  return Ask(arguments, &Stub::FindLargestSize, request, out,
             [&](const v1::FindLargestSizeResponse& response) { PrintLargest(response, out); });
}

}  // namespace tidetape::ctl
