// What Tidetape's collectives took in a step, on its way from Python to the link.
#ifndef TIDETAPE_AGENT_SESSION_COLLECTIVE_FIGURES_H_
#define TIDETAPE_AGENT_SESSION_COLLECTIVE_FIGURES_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "agent/link/tt_link.h"

namespace tidetape::agent {

struct LinkFigures {
  double bytes_per_second = 0;
  double latency_seconds = 0;
  double put_seconds = 0;
  std::vector<std::pair<int64_t, double>> windows;  // bytes, bytes per second
};

// As tidetape.v1.CollectiveReport.
struct CollectiveFigures {
  double gather_seconds = 0;
  double reduce_seconds = 0;
  int64_t covered_bytes = 0;
  double covered_ratio = 0;
  int64_t network_bytes = 0;
  int64_t pacing_generation = 0;
  int32_t ranks = 1;
  int32_t nodes = 1;
  std::optional<LinkFigures> local;
  std::optional<LinkFigures> network;
  std::vector<std::pair<int64_t, int32_t>> units;  // gathered bytes, how many
};

// The figures as the C interface wants them. Borrows nothing.
class BorrowedFigures {
 public:
  explicit BorrowedFigures(const CollectiveFigures& figures);
  BorrowedFigures(const BorrowedFigures&) = delete;

  const tt_collective_report* report() const { return &report_; }

 private:
  struct Link {
    std::vector<tt_window_rate> windows;
    tt_link_rates rates = {};
  };
  static const tt_link_rates* Fill(const std::optional<LinkFigures>& from, Link& to);

  Link local_, network_;
  std::vector<tt_paced_units> units_;
  tt_collective_report report_ = {};
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_COLLECTIVE_FIGURES_H_
