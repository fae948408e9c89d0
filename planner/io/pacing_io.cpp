#include "planner/io/pacing_io.h"

#include <algorithm>

namespace tidetape::planner {
namespace {

LinkRates FromProto(const v1::LinkRates& from) {
  LinkRates to = {from.bytes_per_second(), from.latency_seconds(), from.put_seconds(), {}};
  for (const v1::WindowRate& window : from.windows()) to.windows.push_back({window.window_bytes(), window.bytes_per_second()});
  return to;
}

void ToProto(const LinkRates& from, v1::LinkRates* to) {
  to->set_bytes_per_second(from.bytes_per_second);
  to->set_latency_seconds(from.latency_seconds);
  to->set_put_seconds(from.put_seconds);
  for (const WindowRate& window : from.windows) {
    v1::WindowRate* out = to->add_windows();
    out->set_window_bytes(window.window_bytes);
    out->set_bytes_per_second(window.bytes_per_second);
  }
}

}  // namespace

LinkReport LinksFromProto(const v1::CollectiveReport& report, double step_seconds) {
  LinkReport links;
  links.ranks = report.ranks();
  links.hosts = report.nodes();
  if (report.has_local()) links.local = FromProto(report.local());
  if (report.has_network()) links.network = FromProto(report.network());
  for (const v1::PacedUnits& units : report.units()) links.units.push_back({units.gathered_bytes(), units.count()});
  links.compute_seconds = std::max(0.0, step_seconds - report.gather_seconds() - report.reduce_seconds());
  return links;
}

void LinksToProto(const LinkReport& links, v1::CollectiveReport* report) {
  report->set_ranks(links.ranks);
  report->set_nodes(links.hosts);
  if (links.local.has_value()) ToProto(*links.local, report->mutable_local());
  if (links.network.has_value()) ToProto(*links.network, report->mutable_network());
  for (const PacedUnits& units : links.units) {
    v1::PacedUnits* out = report->add_units();
    out->set_gathered_bytes(units.gathered_bytes);
    out->set_count(units.count);
  }
}

v1::PacingPlan ToProto(const PacingPlan& plan) {
  v1::PacingPlan message;
  message.set_algorithm(plan.algorithm == GatherAlgorithm::kRing ? v1::PacingPlan::ALGORITHM_RING
                                                                 : v1::PacingPlan::ALGORITHM_RECURSIVE_DOUBLING);
  message.set_chunk_bytes(plan.chunk_bytes);
  message.set_puts_in_flight(plan.puts_in_flight);
  message.set_chunk_gap_seconds(plan.chunk_gap_seconds);
  message.set_prefetch_depth(plan.prefetch_depth);
  message.set_staging_slots(plan.staging_slots);
  message.set_slot_reuse(plan.slot_reuse);
  message.set_gather_seconds(plan.gather_seconds);
  return message;
}

PacingPlan FromProto(const v1::PacingPlan& message) {
  PacingPlan plan;
  plan.algorithm =
      message.algorithm() == v1::PacingPlan::ALGORITHM_RING ? GatherAlgorithm::kRing : GatherAlgorithm::kRecursiveDoubling;
  plan.chunk_bytes = message.chunk_bytes();
  plan.puts_in_flight = message.puts_in_flight();
  plan.chunk_gap_seconds = message.chunk_gap_seconds();
  plan.prefetch_depth = message.prefetch_depth();
  plan.staging_slots = message.staging_slots();
  plan.slot_reuse = message.slot_reuse();
  plan.gather_seconds = message.gather_seconds();
  return plan;
}

}  // namespace tidetape::planner
