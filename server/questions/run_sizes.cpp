#include "server/questions/run_sizes.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tidetape::server {
namespace {

// Of a label such as "aten::mm#3 [256, 512] Float".
std::vector<int64_t> ShapeOf(absl::string_view label) {
  const size_t open = label.find('['), close = label.rfind(']');
  if (open == absl::string_view::npos || close == absl::string_view::npos || close < open) return {};
  std::vector<int64_t> shape;
  for (const absl::string_view part : absl::StrSplit(label.substr(open + 1, close - open - 1), ", ")) {
    int64_t length = 0;
    if (!absl::SimpleAtoi(part, &length) || length <= 0) return {};
    shape.push_back(length);
  }
  return shape;
}

}  // namespace

std::vector<int64_t> LeadingShape(const planner::PlanningProblem& problem) {
  for (const planner::BlockInstance& block : problem.blocks) {
    if (!block.options.empty()) continue;
    for (const planner::Storage& storage : problem.tapes[block.tape].storages) {
      if (storage.kind != planner::StorageKind::kIntermediate) continue;
      if (std::vector<int64_t> shape = ShapeOf(storage.label); shape.size() >= 2) return shape;
    }
  }
  return {};
}

std::string AxisName(const std::vector<int64_t>& shape, size_t dimension) {
  if (shape.size() == 2) return dimension == 0 ? "rows" : "";
  if (dimension == 0) return "batch";
  return dimension == 1 ? "sequence" : "";
}

int64_t Tokens(const std::vector<int64_t>& shape) { return shape.size() == 2 ? shape[0] : shape[0] * shape[1]; }

std::vector<size_t> Differences(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<size_t> differing;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (a.size() != b.size() || a[i] != b[i]) differing.push_back(i);
  }
  return differing;
}

}  // namespace tidetape::server
