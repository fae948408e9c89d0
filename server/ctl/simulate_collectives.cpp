#include "server/ctl/simulate_collectives.h"

#include <google/protobuf/struct.pb.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "collectives/simulator/compare_schemes.h"
#include "server/ctl/machine_file.h"
#include "server/ctl/table.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

using collectives::Machine;
using collectives::SchemeCost;
using google::protobuf::Struct;

constexpr int32_t kMostGpus = 65536;

struct Row {
  int32_t gpus = 0;
  SchemeCost cost;
  double stock_seconds = 0;
};

void SetNumber(Struct* object, const char* key, double value) { (*object->mutable_fields())[key].set_number_value(value); }

void SetLink(Struct* object, const char* key, const collectives::LinkModel& link) {
  Struct* fields = (*object->mutable_fields())[key].mutable_struct_value();
  SetNumber(fields, "bytes_per_second", link.bytes_per_second);
  SetNumber(fields, "latency_seconds", link.latency_seconds);
  SetNumber(fields, "put_seconds", link.put_seconds);
  (*fields->mutable_fields())["sender_copies"].set_bool_value(link.sender_copies);
  (*fields->mutable_fields())["multicast"].set_bool_value(link.multicast);
  (*fields->mutable_fields())["takes_processor"].set_bool_value(link.takes_processor);
}

void PrintJson(const std::string& model, const Machine& machine, const std::vector<Row>& rows, std::ostream& out) {
  Struct report;
  (*report.mutable_fields())["model"].set_string_value(model);
  for (const std::string& text : collectives::SchemeAssumptions()) {
    (*report.mutable_fields())["assumptions"].mutable_list_value()->add_values()->set_string_value(text);
  }
  Struct* fields = (*report.mutable_fields())["machine"].mutable_struct_value();
  SetLink(fields, "local", machine.local);
  SetLink(fields, "network", machine.network);
  SetNumber(fields, "copy_bytes_per_second", machine.copy_bytes_per_second);
  SetNumber(fields, "add_elements_per_second", machine.add_elements_per_second);
  SetNumber(fields, "step_seconds", machine.step_seconds);
  SetNumber(fields, "processors", machine.processors);
  for (const Row& row : rows) {
    Struct* cells = (*report.mutable_fields())["rows"].mutable_list_value()->add_values()->mutable_struct_value();
    SetNumber(cells, "gpus", row.gpus);
    (*cells->mutable_fields())["scheme"].set_string_value(row.cost.scheme);
    SetNumber(cells, "gather_seconds", row.cost.gather_seconds);
    SetNumber(cells, "reduce_seconds", row.cost.reduce_seconds);
    SetNumber(cells, "step_seconds", row.cost.step_seconds());
    SetNumber(cells, "over_stock", row.cost.step_seconds() / row.stock_seconds);
    SetNumber(cells, "copy_seconds", row.cost.copy_seconds);
    SetNumber(cells, "gradients_seconds", row.cost.gradients_seconds);
    SetNumber(cells, "network_bytes", static_cast<double>(row.cost.network_bytes));
    SetNumber(cells, "network_load", row.cost.network_load);
    SetNumber(cells, "staging_bytes", static_cast<double>(row.cost.staging_bytes));
    SetNumber(cells, "peak_bytes", static_cast<double>(row.cost.peak_bytes));
  }
  out << ToJson(report, OutputFormat{OutputFormat::kJson});
}

std::string LinkText(const collectives::LinkModel& link) {
  return absl::StrFormat("%.4g GB/s, latency %s, %s a put%s%s", link.bytes_per_second / 1e9, FormatSeconds(link.latency_seconds),
                         FormatSeconds(link.put_seconds), link.sender_copies ? ", the sender copies" : "",
                         link.multicast ? ", multicast" : "");
}

void PrintText(const SimulateCollectivesArguments& arguments, const collectives::ModelShape& model, const Machine& machine,
               const std::vector<Row>& rows, std::ostream& out) {
  out << absl::StrFormat("Collectives of one training step of %s, %.2f billion parameters, %d ranks a node\n\n", model.name,
                         static_cast<double>(model.parameters()) / 1e9, arguments.per_node);
  Table table({"GPUs", "scheme", "all-gather", "reduce-scatter", "step", "of stock", "copies", "gradients free", "network load",
               "sent a rank", "staging", "peak"});
  for (const Row& row : rows) {
    const SchemeCost& cost = row.cost;
    table.Add({absl::StrCat(row.gpus), cost.scheme, FormatSeconds(cost.gather_seconds), FormatSeconds(cost.reduce_seconds),
               FormatSeconds(cost.step_seconds()), absl::StrFormat("%.2f", cost.step_seconds() / row.stock_seconds),
               FormatSeconds(cost.copy_seconds), FormatSeconds(cost.gradients_seconds),
               absl::StrFormat("%.0f %%", 100 * cost.network_load), FormatBytes(cost.network_bytes),
               FormatBytes(cost.staging_bytes), FormatBytes(cost.peak_bytes)});
  }
  table.Print(out);
  out << "\nAssumptions:\n";
  for (const std::string& text : collectives::SchemeAssumptions()) out << "  " << text << "\n";
  out << "  within a node: " << LinkText(machine.local) << "\n";
  out << "  between nodes: " << LinkText(machine.network) << " (each rank, each direction)\n";
  out << absl::StrFormat("  on a rank: copies %.4g GB/s, additions %.4g billion elements/s, %s a step\n",
                         machine.copy_bytes_per_second / 1e9, machine.add_elements_per_second / 1e9,
                         FormatSeconds(machine.step_seconds));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ParseGpus(const std::string& text) {
  const auto invalid = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("--gpus '", text, "' ", why, "; write 64, 8,64,512 or 8..4096"));
  };
  const auto number = [](absl::string_view digits, int32_t* value) {
    return absl::SimpleAtoi(digits, value) && *value >= 1 && *value <= kMostGpus;
  };
  std::vector<int32_t> gpus;
  if (const size_t dots = text.find(".."); dots != std::string::npos) {
    int32_t first = 0, last = 0;
    if (!number(text.substr(0, dots), &first) || !number(text.substr(dots + 2), &last)) return invalid("is no range of numbers");
    if (first > last) return invalid("ends before it begins");
    for (int32_t count = first; count <= last; count *= 2) gpus.push_back(count);
    return gpus;
  }
  for (absl::string_view digits : absl::StrSplit(text, ',')) {
    int32_t count = 0;
    if (!number(digits, &count)) return invalid("is no number from 1 to 65536");
    gpus.push_back(count);
  }
  return gpus;
}

absl::Status SimulateCollectives(const SimulateCollectivesArguments& arguments, const OutputFormat& format, std::ostream& out) {
  const auto gpus = ParseGpus(arguments.gpus);
  if (!gpus.ok()) return gpus.status();
  const auto model = collectives::ModelNamed(arguments.model);
  if (!model.ok()) return model.status();
  const auto chunk = ParseBytes(arguments.chunk);
  if (!chunk.ok()) return chunk.status();
  auto machine = absl::StatusOr<Machine>(collectives::H100Machine());
  if (!arguments.links.empty()) machine = ReadMachineFile(arguments.links, *machine);
  if (!machine.ok()) return machine.status();
  collectives::ScheduleOptions options;
  options.chunk_bytes = *chunk;
  options.gap = absl::Microseconds(arguments.gap_microseconds);
  options.rail = arguments.ring ? collectives::RailAlgorithm::kRing : collectives::RailAlgorithm::kDoubling;
  std::vector<Row> rows;
  for (int32_t count : *gpus) {
    const auto costs = collectives::CompareSchemes(*model, {count, arguments.per_node}, *machine, options);
    if (!costs.ok()) return costs.status();
    for (const SchemeCost& cost : *costs) rows.push_back({count, cost, costs->front().step_seconds()});
  }
  if (format.json()) {
    PrintJson(model->name, *machine, rows, out);
  } else {
    PrintText(arguments, *model, *machine, rows, out);
  }
  return absl::OkStatus();
}

}  // namespace tidetape::ctl
