#include "agent/session/schedule.h"

namespace tidetape::agent {

std::vector<int32_t> ScheduleOf(const std::vector<int32_t>& order, size_t executions) {
  if (order.size() != 2 * executions) return {};
  std::vector<int> runs(executions, 0);
  std::vector<int32_t> schedule, usual;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool backward = order[i] < 0;
    const int32_t position = backward ? ~order[i] : order[i];
    if (static_cast<size_t>(position) >= executions || runs[position]++ != (backward ? 1 : 0)) return {};
    if (backward && (i == 0 || order[i - 1] >= 0)) schedule.push_back(0);
    schedule.push_back(backward ? -(position + 1) : position + 1);
    usual.push_back(static_cast<int32_t>(i < executions ? i : i - 2 * executions));  // ~p is -p - 1
  }
  return order == usual ? std::vector<int32_t>() : schedule;
}

}  // namespace tidetape::agent
