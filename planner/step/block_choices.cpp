#include "planner/step/block_choices.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/step/step_memory.h"

namespace tidetape::planner {
namespace {

// Vertices of a hull among the choices: so many spread over its bytes, and so many on each side of the bound's point. Few blocks
// need many choices each, so that their bytes add up to just below the limit; many blocks need few.
int32_t SpreadVertices(size_t blocks) {
  return static_cast<int32_t>(std::clamp<size_t>(2048 / std::max<size_t>(blocks, 1), 8, 64));
}
int32_t NearVertices(size_t blocks) { return static_cast<int32_t>(std::clamp<size_t>(256 / std::max<size_t>(blocks, 1), 1, 16)); }

// Lean plans have the ids below.
constexpr int32_t kKeepAllChoice = -1;

int32_t LeanId(size_t number) { return kKeepAllChoice - 1 - static_cast<int32_t>(number); }

// Those within `around` of `center`.
std::vector<int32_t> Around(const std::vector<Frontier::Vertex>& vertices, int32_t center, int32_t around) {
  const int32_t last = static_cast<int32_t>(vertices.size()) - 1;
  std::vector<int32_t> chosen;
  for (int32_t v = std::max(0, center - around); v <= std::min(last, center + around); ++v) chosen.push_back(v);
  return chosen;
}

// The richest vertex with at most so many bytes, or else the leanest.
int32_t VertexAt(const std::vector<Frontier::Vertex>& vertices, int64_t bytes) {
  const auto at = std::partition_point(vertices.begin(), vertices.end() - 1,
                                       [&](const Frontier::Vertex& vertex) { return vertex.bytes > bytes; });
  return static_cast<int32_t>(at - vertices.begin());
}

}  // namespace

BlockPlan ToBlockPlan(const TapePlan& plan, const BlockTape& tape, const BlockInstance& instance) {
  return {.saved = plan.saved,
          .replayed = plan.replayed,
          .moved = {},
          .saved_bytes = plan.saved_bytes,
          .replay_seconds = plan.replay_seconds,
          .own_peak_bytes = OwnPeakBytes(tape, instance, plan.profile)};
}

BlockPlan ToBlockPlan(const BlockInstance& instance, int32_t option) {
  const BlockOption& chosen = instance.options[option];
  return {.saved = {},
          .replayed = {},
          .moved = {},
          .saved_bytes = chosen.saved_bytes,
          .replay_seconds = chosen.seconds,
          .own_peak_bytes = chosen.own_peak_bytes,
          .option = option};
}

absl::StatusOr<std::unique_ptr<BlockChoices>> BlockChoices::Create(const PlanningProblem& problem) {
  std::unique_ptr<BlockChoices> choices(new BlockChoices(problem));
  choices->tapes_.resize(problem.tapes.size());
  for (const BlockInstance& block : problem.blocks) {
    if (!block.options.empty() || choices->tapes_[block.tape] != nullptr) continue;
    auto plans = TapePlans::Create(problem.tapes[block.tape]);
    if (!plans.ok()) {
      return absl::Status(plans.status().code(), absl::StrCat("tapes[", block.tape, "], ", plans.status().message()));
    }
    choices->tapes_[block.tape] = *std::move(plans);
  }
  choices->option_hulls_.resize(problem.blocks.size());
  for (size_t b = 0; b < problem.blocks.size(); ++b) choices->PrepareBlock(b);
  return choices;
}

void BlockChoices::PrepareBlock(size_t b) {
  const BlockInstance& block = problem_.blocks[b];
  if (has_tape(b)) {
    hulls_.push_back(&tape_plans(b).bound());
    own_peaks_.push_back(tape_plans(b).RangeOfOwnPeaks(block));
    least_.push_back({tape_plans(b).bound().back().bytes, own_peaks_[b].least_bytes});
    spread_.push_back(SpreadChoices(b));
    return;
  }
  std::vector<HullPoint> points;
  std::vector<Choice> choices;
  BlockLeast least{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()};
  for (size_t o = 0; o < block.options.size(); ++o) {
    const BlockOption& option = block.options[o];
    points.push_back({option.saved_bytes, option.seconds});
    choices.push_back({option.saved_bytes, option.own_peak_bytes, option.seconds, static_cast<int32_t>(o)});
    least.saved_bytes = std::min(least.saved_bytes, option.saved_bytes);
    least.own_peak_bytes = std::min(least.own_peak_bytes, option.own_peak_bytes);
  }
  option_hulls_[b] = LowerHull(std::move(points));
  hulls_.push_back(&option_hulls_[b]);
  own_peaks_.emplace_back();
  least_.push_back(least);
  KeepParetoChoices(choices);
  spread_.push_back(std::move(choices));
}

Choice BlockChoices::VertexChoice(size_t b, int32_t vertex) {
  TapePlans& tape = *tapes_[problem_.blocks[b].tape];
  // Where the cut is not exact, the plan may cost less than it says.
  if (!tape.exact()) return KnownChoice(b, tape.AtVertex(vertex), vertex);
  const Frontier::Vertex& at = tape.vertices()[vertex];
  const OwnPeakRange& range = own_peaks_[b];
  return {at.bytes, range.most_bytes, at.seconds, vertex,
          range.most_bytes - std::max(range.least_bytes, at.bytes + range.standing_bytes)};
}

Choice BlockChoices::KnownChoice(size_t b, const TapePlan& plan, int32_t id) const {
  const BlockInstance& block = problem_.blocks[b];
  return {plan.saved_bytes, OwnPeakBytes(problem_.tapes[block.tape], block, plan.profile), plan.replay_seconds, id};
}

void BlockChoices::FindOwnPeak(size_t b, Choice& choice) {
  if (choice.doubt_bytes == 0) return;
  const BlockInstance& block = problem_.blocks[b];
  choice.own_peak_bytes = OwnPeakBytes(problem_.tapes[block.tape], block, tapes_[block.tape]->AtVertex(choice.id).profile);
  choice.doubt_bytes = 0;
}

// Adds those of the vertices that are not among the choices.
void BlockChoices::AddVertices(size_t b, const std::vector<int32_t>& vertices, std::vector<Choice>& choices) {
  const size_t known = choices.size();
  for (int32_t vertex : vertices) {
    const bool there =
        std::any_of(choices.begin(), choices.begin() + known, [&](const Choice& choice) { return choice.id == vertex; });
    if (!there) choices.push_back(VertexChoice(b, vertex));
  }
  if (choices.size() == known) return;
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& x, const Choice& y) { return x.saved_bytes < y.saved_bytes; });
}

// Vertices spread over the hull, and "keep all".
std::vector<Choice> BlockChoices::SpreadChoices(size_t b) {
  TapePlans& tape = *tapes_[problem_.blocks[b].tape];
  const int32_t last = static_cast<int32_t>(tape.vertices().size()) - 1;
  std::vector<Choice> choices{KnownChoice(b, tape.KeepAll(), kKeepAllChoice)};
  AddVertices(b, SpreadOver(tape.vertices(), 0, last, SpreadVertices(problem_.blocks.size())), choices);
  KeepParetoChoices(choices);
  return choices;
}

// The neighbours of the vertex with the least own peak.
void BlockChoices::AddLeanVertices(size_t b) {
  const Choice* leanest = nullptr;
  for (Choice& choice : spread_[b]) {
    FindOwnPeak(b, choice);
    const bool is_vertex = choice.id > kKeepAllChoice;
    if (is_vertex && (leanest == nullptr || choice.own_peak_bytes < leanest->own_peak_bytes)) leanest = &choice;
  }
  if (leanest == nullptr) return;
  AddVertices(b, Around(tape_plans(b).vertices(), leanest->id, NearVertices(spread_.size())), spread_[b]);
  KeepParetoChoices(spread_[b]);
}

void BlockChoices::AddLean(size_t searched, int64_t& visits) {
  AddLeanVertices(searched);
  const int32_t tape = problem_.blocks[searched].tape;
  const size_t known = tapes_[tape]->lean_plans().size();
  tapes_[tape]->SearchLeanPlans(problem_.blocks[searched], visits);
  const std::vector<TapePlan>& plans = tapes_[tape]->lean_plans();
  for (size_t b = 0; b < spread_.size(); ++b) {
    if (!has_tape(b) || problem_.blocks[b].tape != tape) continue;
    for (size_t i = known; i < plans.size(); ++i) {
      spread_[b].push_back(KnownChoice(b, plans[i], LeanId(i)));
    }
    KeepParetoChoices(spread_[b]);
  }
}

Choices BlockChoices::Near(const std::vector<int64_t>& saved_bytes) {
  Choices choices = spread_;
  const int32_t near = NearVertices(choices.size());
  for (size_t b = 0; b < choices.size(); ++b) {
    if (!has_tape(b)) continue;
    const std::vector<Frontier::Vertex>& vertices = tape_plans(b).vertices();
    AddVertices(b, Around(vertices, VertexAt(vertices, saved_bytes[b]), near), choices[b]);
  }
  return choices;
}

void BlockChoices::AddWithin(const StepBound& bound, double seconds, Choices& choices) {
  for (size_t b = 0; b < choices.size(); ++b) {
    if (!has_tape(b)) continue;
    const std::vector<Frontier::Vertex>& vertices = tape_plans(b).vertices();
    const auto within = [&](int32_t v) { return ExcessSeconds(bound, b, vertices[v].bytes, vertices[v].seconds) <= seconds; };
    // The hull is convex, so they are neighbours.
    const int32_t at = VertexAt(vertices, bound.saved_bytes[b]), last = static_cast<int32_t>(vertices.size()) - 1;
    int32_t first = at, end = at;
    while (first > 0 && within(first - 1)) --first;
    while (end < last && within(end + 1)) ++end;
    AddVertices(b, SpreadOver(vertices, first, end, SpreadVertices(choices.size())), choices[b]);
  }
}

int64_t BlockChoices::VisitsAChoice() const {
  int64_t visits = 1;
  for (size_t t = 0; t < tapes_.size(); ++t)
    visits += tapes_[t] == nullptr ? 0 : static_cast<int64_t>(problem_.tapes[t].ops.size());
  return visits;
}

BlockPlan BlockChoices::PlanOf(size_t b, int32_t id) {
  const BlockInstance& block = problem_.blocks[b];
  if (!has_tape(b)) return ToBlockPlan(block, id);
  TapePlans& tape = *tapes_[block.tape];
  const TapePlan& plan = id == kKeepAllChoice  ? tape.KeepAll()
                         : id < kKeepAllChoice ? tape.lean_plans()[LeanId(0) - id]
                                               : tape.AtVertex(id);
  return ToBlockPlan(plan, problem_.tapes[block.tape], block);
}

int32_t BlockChoices::KeepAllId(size_t b) const {
  if (has_tape(b)) return kKeepAllChoice;
  const std::vector<BlockOption>& options = problem_.blocks[b].options;
  const auto fastest = std::min_element(options.begin(), options.end(),
                                        [](const BlockOption& x, const BlockOption& y) { return x.seconds < y.seconds; });
  return static_cast<int32_t>(fastest - options.begin());
}

}  // namespace tidetape::planner
