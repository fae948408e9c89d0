#include "agent/session/collective_figures.h"

namespace tidetape::agent {

const tt_link_rates* BorrowedFigures::Fill(const std::optional<LinkFigures>& from, Link& to) {
  if (!from.has_value()) return nullptr;
  for (const auto& [window_bytes, rate] : from->windows) to.windows.push_back({window_bytes, rate});
  to.rates = {from->bytes_per_second, from->latency_seconds, from->put_seconds, to.windows.data(), to.windows.size()};
  return &to.rates;
}

BorrowedFigures::BorrowedFigures(const CollectiveFigures& figures) {
  for (const auto& [gathered_bytes, count] : figures.units) units_.push_back({gathered_bytes, count});
  report_.gather_seconds = figures.gather_seconds;
  report_.reduce_seconds = figures.reduce_seconds;
  report_.covered_bytes = figures.covered_bytes;
  report_.covered_ratio = figures.covered_ratio;
  report_.network_bytes = figures.network_bytes;
  report_.pacing_generation = figures.pacing_generation;
  report_.ranks = figures.ranks;
  report_.nodes = figures.nodes;
  report_.local = Fill(figures.local, local_);
  report_.network = Fill(figures.network, network_);
  report_.units = units_.data();
  report_.num_units = units_.size();
}

}  // namespace tidetape::agent
