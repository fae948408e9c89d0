#include "planner/step/schedule_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "planner/step/step_memory.h"

namespace tidetape::planner {
namespace {

// Of the search for prices.
constexpr int kMostPriceSteps = 3000;
constexpr int kPatience = 25;          // steps without progress until the level is lowered
constexpr double kFinestLevel = 1e-7;  // of the seconds of the leanest plan

// Alternatives of a block that are looked at for one exchange: the next leaner ones, where its saved bytes are too many.
constexpr int32_t kNextLeaner = 4;
constexpr int kExchangesABlock = 16;
// Trades, one block faster and others leaner for it, that are tried in all.
constexpr int kMostTrades = 2048;

// Parts that a search through all picks may look at: for the best ones, and for any that keep a limit.
constexpr int64_t kSearchedParts = 20'000'000;
constexpr int64_t kPartsALimit = 500'000;

// When the blocks of a schedule are alive: what they save counts in the parts from their forward to before their backward.
class Timeline {
 public:
  explicit Timeline(const PlanningProblem& problem) : problem_(problem), forward_(problem.blocks.size()), backward_(forward_) {
    for (size_t p = 0; p < problem.schedule.size(); ++p) {
      const ScheduledPart& part = problem.schedule[p];
      if (part.phase == Phase::kForward) forward_[part.block] = p;
      if (part.phase == Phase::kBackward) backward_[part.block] = p;
    }
  }

  size_t parts() const { return problem_.schedule.size(); }
  size_t forward(size_t b) const { return forward_[b]; }
  size_t backward(size_t b) const { return backward_[b]; }

  // By part: the sum of what the blocks alive in it save.
  template <class SavedBytes>
  std::vector<int64_t> Alive(const SavedBytes& saved_bytes) const {
    std::vector<int64_t> alive(parts(), 0);
    for (size_t b = 0; b < forward_.size(); ++b) {
      const int64_t bytes = saved_bytes(b);
      alive[forward_[b]] += bytes;
      alive[backward_[b]] -= bytes;
    }
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    return alive;
  }

  // By part: the base, what the blocks alive in it save, and in a backward its block's own peak.
  template <class SavedBytes, class OwnPeakBytes>
  std::vector<int64_t> Loads(const SavedBytes& saved_bytes, const OwnPeakBytes& own_peak_bytes) const {
    std::vector<int64_t> loads = Alive(saved_bytes);
    for (size_t p = 0; p < loads.size(); ++p) loads[p] += BaseBytes(problem_, problem_.schedule[p]);
    for (size_t b = 0; b < backward_.size(); ++b) loads[backward_[b]] += own_peak_bytes(b);
    return loads;
  }

 private:
  const PlanningProblem& problem_;
  std::vector<size_t> forward_;  // by block: its part of the schedule
  std::vector<size_t> backward_;
};

// The point of the hull that costs the least where a byte has this price.
const HullPoint& Cheapest(const std::vector<HullPoint>& hull, double price) {
  size_t low = 0, high = hull.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const HullPoint &from = hull[middle], &to = hull[middle + 1];
    if (to.seconds - from.seconds < price * static_cast<double>(from.bytes - to.bytes)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return hull[low];
}

// The relaxation at given prices: a bound, where it is reached, and by how much each part's room is exceeded there.
struct Priced {
  double seconds = 0;
  std::vector<double> byte_prices;       // by block
  std::vector<const HullPoint*> points;  // by block
  std::vector<double> excess;            // by part
};

class Relaxation {
 public:
  Relaxation(const Timeline& timeline, const std::vector<const std::vector<HullPoint>*>& hulls, std::vector<int64_t> rooms)
      : timeline_(timeline), hulls_(hulls), rooms_(std::move(rooms)) {}

  Priced At(const std::vector<double>& prices) const {
    std::vector<double> sums(prices.size() + 1, 0);
    std::partial_sum(prices.begin(), prices.end(), sums.begin() + 1);
    Priced priced;
    for (size_t b = 0; b < hulls_.size(); ++b) {
      const double price = std::max(0.0, sums[timeline_.backward(b)] - sums[timeline_.forward(b)]);
      const HullPoint& point = Cheapest(*hulls_[b], price);
      priced.byte_prices.push_back(price);
      priced.points.push_back(&point);
      priced.seconds += point.seconds + price * static_cast<double>(point.bytes);
    }
    const std::vector<int64_t> alive = timeline_.Alive([&](size_t b) { return priced.points[b]->bytes; });
    for (size_t p = 0; p < prices.size(); ++p) {
      priced.seconds -= prices[p] * static_cast<double>(rooms_[p]);
      priced.excess.push_back(static_cast<double>(alive[p] - rooms_[p]));
    }
    return priced;
  }

  // The best that the level method finds from prices of 0.
  Priced Best() const {
    std::vector<double> prices(rooms_.size(), 0), best_prices = prices;
    Priced best = At(prices);
    double leanest = 0;
    for (const std::vector<HullPoint>* hull : hulls_) leanest += hull->back().seconds;
    double level = (leanest - best.seconds) / 2, start = best.seconds;
    int patience = kPatience;
    Priced at = best;
    for (int step = 0; step < kMostPriceSteps && level > kFinestLevel * leanest; ++step) {
      double norm = 0;
      for (size_t p = 0; p < prices.size(); ++p) {
        if (prices[p] > 0 || at.excess[p] > 0) norm += at.excess[p] * at.excess[p];
      }
      if (norm == 0) break;  // every part keeps its room, and those with a price use all of it
      const double length = (best.seconds + level - at.seconds) / norm;
      for (size_t p = 0; p < prices.size(); ++p) prices[p] = std::max(0.0, prices[p] + length * at.excess[p]);
      at = At(prices);
      if (at.seconds > best.seconds) {
        best = at;
        best_prices = prices;
      }
      if (best.seconds >= start + level / 2) {
        start = best.seconds;
        patience = kPatience;
      } else if (--patience == 0) {
        level /= 2;
        start = best.seconds;
        patience = kPatience;
        prices = best_prices;
        at = best;
      }
    }
    return best;
  }

 private:
  const Timeline& timeline_;
  const std::vector<const std::vector<HullPoint>*>& hulls_;
  const std::vector<int64_t> rooms_;  // by part: for what blocks alive in it save
};

// Picks of all blocks and what they make of the parts.
class Picked {
 public:
  Picked(const PlanningProblem& problem, const Timeline& timeline, const Choices& choices, std::vector<int32_t> picks)
      : problem_(&problem), timeline_(&timeline), choices_(&choices), picks_(std::move(picks)) {
    loads_ = timeline.Loads([&](size_t b) { return pick(b).saved_bytes; }, [&](size_t b) { return pick(b).own_peak_bytes; });
  }

  const std::vector<int32_t>& picks() const { return picks_; }
  const Choice& pick(size_t b) const { return at(b, picks_[b]); }

  double Seconds() const { return SecondsOf(*choices_, picks_); }

  int64_t Peak() const {
    const int64_t parts = loads_.empty() ? 0 : *std::max_element(loads_.begin(), loads_.end());
    return std::max(parts, problem_->optimizer_peak_bytes);
  }

  void Exchange(size_t b, int32_t with) {
    const Choice &before = pick(b), &after = at(b, with);
    for (size_t p = timeline_->forward(b); p < timeline_->backward(b); ++p) loads_[p] += after.saved_bytes - before.saved_bytes;
    loads_[timeline_->backward(b)] += after.own_peak_bytes - before.own_peak_bytes;
    picks_[b] = with;
  }

  // By how much the exchange lowers what all parts together exceed the limit by.
  int64_t Relief(size_t b, int32_t with, int64_t limit) const {
    const Choice &before = pick(b), &after = at(b, with);
    int64_t relief = 0;
    const auto add = [&](size_t p, int64_t change) {
      relief += std::max<int64_t>(0, loads_[p] - limit) - std::max<int64_t>(0, loads_[p] + change - limit);
    };
    for (size_t p = timeline_->forward(b); p < timeline_->backward(b); ++p) add(p, after.saved_bytes - before.saved_bytes);
    add(timeline_->backward(b), after.own_peak_bytes - before.own_peak_bytes);
    return relief;
  }

  // The part that exceeds the limit the most is relieved by the exchange that costs the fewest seconds for its relief, until no
  // part exceeds it. False where no exchange helps any more.
  bool Repair(int64_t limit) {
    if (problem_->optimizer_peak_bytes > limit) return false;
    const size_t blocks = picks_.size();
    for (size_t i = 0; i <= blocks * kExchangesABlock; ++i) {
      const auto worst = std::max_element(loads_.begin(), loads_.end());
      if (worst == loads_.end() || *worst <= limit) return true;
      const size_t part = worst - loads_.begin();
      size_t best_block = 0;
      int32_t best_pick = -1;
      double best_price = 0;
      const auto offer = [&](size_t b, int32_t with) {
        const int64_t relief = Relief(b, with, limit);
        if (relief <= 0) return;
        const double price = (at(b, with).seconds - pick(b).seconds) / static_cast<double>(relief);
        if (best_pick >= 0 && price >= best_price) return;
        best_block = b;
        best_pick = with;
        best_price = price;
      };
      for (size_t b = 0; b < blocks; ++b) {
        if (timeline_->backward(b) == part) {
          for (int32_t c = 0; c < count(b); ++c) offer(b, c);
        } else if (timeline_->forward(b) <= part && part < timeline_->backward(b)) {
          for (int32_t c = picks_[b] - 1; c >= std::max(0, picks_[b] - kNextLeaner); --c) offer(b, c);
        }
      }
      if (best_pick < 0) return false;
      Exchange(best_block, best_pick);
    }
    return false;
  }

  // Exchanges one block's pick for a faster one, the largest gain first, as long as the limit allows one.
  void Improve(int64_t limit) {
    while (true) {
      size_t best_block = 0;
      int32_t best_pick = -1;
      double best_gain = 0;
      for (size_t b = 0; b < picks_.size(); ++b) {
        const auto first = loads_.begin() + timeline_->forward(b), end = loads_.begin() + timeline_->backward(b);
        const int64_t room = limit - *std::max_element(first, end), own_room = limit - *end;
        for (int32_t c = 0; c < count(b); ++c) {
          const Choice &choice = at(b, c), &now = pick(b);
          if (now.seconds - choice.seconds <= best_gain || choice.saved_bytes - now.saved_bytes > room) continue;
          if (choice.own_peak_bytes - now.own_peak_bytes > own_room) continue;
          best_block = b;
          best_pick = c;
          best_gain = now.seconds - choice.seconds;
        }
      }
      if (best_pick < 0) return;
      Exchange(best_block, best_pick);
    }
  }

  // Makes one block faster and others leaner for it, where all together gain.
  void Trade(int64_t limit) {
    int trades = 0;
    for (bool better = true; better;) {
      better = false;
      for (size_t b = 0; b < picks_.size(); ++b) {
        const int32_t faster = NextFaster(b);
        if (faster < 0) continue;
        if (++trades > kMostTrades) return;
        Picked trial = *this;
        trial.Exchange(b, faster);
        if (!trial.Repair(limit)) continue;
        trial.Improve(limit);
        if (trial.Seconds() >= Seconds()) continue;
        *this = std::move(trial);
        better = true;
      }
    }
  }

 private:
  // The slowest choice that is faster than the block's pick, or -1.
  int32_t NextFaster(size_t b) const {
    int32_t next = -1;
    for (int32_t c = 0; c < count(b); ++c) {
      if (at(b, c).seconds < pick(b).seconds && (next < 0 || at(b, c).seconds > at(b, next).seconds)) next = c;
    }
    return next;
  }

  const Choice& at(size_t b, int32_t c) const { return (*choices_)[b][c]; }
  int32_t count(size_t b) const { return static_cast<int32_t>((*choices_)[b].size()); }

  const PlanningProblem* problem_;
  const Timeline* timeline_;
  const Choices* choices_;
  std::vector<int32_t> picks_;
  std::vector<int64_t> loads_;  // by part, in bytes
};

// Goes through all picks, each block's choices by what they cost above the bound's prices, as long as it may.
class Search {
 public:
  Search(const Timeline& timeline, const Choices& choices, const StepBound& bound, int64_t limit)
      : timeline_(timeline),
        choices_(choices),
        bound_(bound),
        limit_(limit),
        order_(choices.size()),
        least_(LeastOf(choices)),
        picks_(choices.size(), 0) {
    for (size_t b = 0; b < choices.size(); ++b) {
      std::vector<std::pair<double, int32_t>>& list = by_excess_.emplace_back();
      for (size_t c = 0; c < choices[b].size(); ++c) {
        const Choice& choice = choices[b][c];
        list.emplace_back(std::max(0.0, ExcessSeconds(bound, b, choice.saved_bytes, choice.seconds)), static_cast<int32_t>(c));
      }
      std::sort(list.begin(), list.end());
    }
    // Blocks whose choices differ the most decide first.
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](size_t x, size_t y) { return SecondOf(x) > SecondOf(y); });
    // What is not decided yet counts as little as it can.
    loads_ = timeline.Loads([&](size_t b) { return least_[b].saved_bytes; }, [&](size_t b) { return least_[b].own_peak_bytes; });
  }

  // The best picks of less than so many seconds, or nothing.
  std::optional<std::vector<int32_t>> FindBest(double seconds) {
    most_seconds_ = seconds;
    parts_left_ = kSearchedParts;
    Visit(0, 0, 0);
    return std::move(best_);
  }

  // Some picks that keep the limit.
  std::optional<std::vector<int32_t>> FindAny() {
    most_seconds_ = std::numeric_limits<double>::infinity();
    parts_left_ = kPartsALimit;
    first_will_do_ = true;
    Visit(0, 0, 0);
    return std::move(best_);
  }

 private:
  double SecondOf(size_t b) const { return by_excess_[b].size() > 1 ? by_excess_[b][1].first : std::numeric_limits<double>::max(); }

  // Adds what a choice has above the least, or takes it off again. False where the limit is exceeded then.
  bool Add(size_t b, const Choice& choice, int sign) {
    const int64_t saved = sign * (choice.saved_bytes - least_[b].saved_bytes);
    const int64_t own = sign * (choice.own_peak_bytes - least_[b].own_peak_bytes);
    bool within = true;
    for (size_t p = timeline_.forward(b); p < timeline_.backward(b); ++p) within &= (loads_[p] += saved) <= limit_;
    parts_left_ -= static_cast<int64_t>(timeline_.backward(b) - timeline_.forward(b)) + 1;
    return ((loads_[timeline_.backward(b)] += own) <= limit_) && within;
  }

  void Visit(size_t depth, double excess, double seconds) {
    if (depth == order_.size()) {
      if (seconds >= most_seconds_) return;
      most_seconds_ = seconds;
      best_ = picks_;
      if (first_will_do_) parts_left_ = 0;
      return;
    }
    const size_t b = order_[depth];
    for (const auto& [more, c] : by_excess_[b]) {
      // What the bound and the excess say the whole costs at least.
      if (bound_.seconds + excess + more >= most_seconds_ || parts_left_ <= 0) return;
      const Choice& choice = choices_[b][c];
      picks_[b] = c;
      if (Add(b, choice, 1)) Visit(depth + 1, excess + more, seconds + choice.seconds);
      Add(b, choice, -1);
    }
  }

  const Timeline& timeline_;
  const Choices& choices_;
  const StepBound& bound_;
  const int64_t limit_;
  std::vector<size_t> order_;
  std::vector<std::vector<std::pair<double, int32_t>>> by_excess_;  // by block: excess seconds and position
  std::vector<BlockLeast> least_;
  std::vector<int64_t> loads_;
  std::vector<int32_t> picks_;
  int64_t parts_left_ = 0;
  bool first_will_do_ = false;
  double most_seconds_ = 0;
  std::optional<std::vector<int32_t>> best_;
};

void LearnAll(Choices& choices, const LearnOwnPeak& learn) {
  for (size_t b = 0; b < choices.size(); ++b) {
    for (Choice& choice : choices[b]) {
      if (choice.doubt_bytes > 0) learn(b, choice);
    }
  }
}

}  // namespace

std::optional<StepBound> BoundSchedule(const PlanningProblem& problem, const std::vector<const std::vector<HullPoint>*>& hulls,
                                       const std::vector<BlockLeast>& least, int64_t limit) {
  if (problem.optimizer_peak_bytes > limit) return std::nullopt;
  const Timeline timeline(problem);
  const auto saved_bytes = [&](size_t b) { return least[b].saved_bytes; };
  const std::vector<int64_t> loads = timeline.Loads(saved_bytes, [&](size_t b) { return least[b].own_peak_bytes; });
  std::vector<int64_t> rooms = timeline.Alive(saved_bytes);
  for (size_t p = 0; p < rooms.size(); ++p) {
    if (loads[p] > limit) return std::nullopt;
    rooms[p] += limit - loads[p];
  }
  const Priced best = Relaxation(timeline, hulls, std::move(rooms)).Best();
  StepBound bound{.seconds = best.seconds, .saved_bytes = {}, .block_seconds = {}, .byte_prices = best.byte_prices};
  for (const HullPoint* point : best.points) {
    bound.saved_bytes.push_back(point->bytes);
    bound.block_seconds.push_back(point->seconds);
  }
  return bound;
}

LeastStep FindLeastInSchedule(const PlanningProblem& problem, Choices& choices, const LearnOwnPeak& learn) {
  LearnAll(choices, learn);
  const Timeline timeline(problem);
  Picked best(problem, timeline, choices, std::vector<int32_t>(choices.size(), 0));  // the leanest: choices come by rising bytes
  const StepBound none{.seconds = 0,
                       .saved_bytes = std::vector<int64_t>(choices.size(), 0),
                       .block_seconds = std::vector<double>(choices.size(), 0),
                       .byte_prices = std::vector<double>(choices.size(), 0)};
  int64_t low = problem.optimizer_peak_bytes;
  while (low < best.Peak()) {
    const int64_t middle = low + (best.Peak() - low) / 2;
    Picked leaner = best;
    if (leaner.Repair(middle)) {
      best = leaner;
    } else if (auto found = Search(timeline, choices, none, middle).FindAny()) {
      best = Picked(problem, timeline, choices, *std::move(found));
    } else {
      low = middle + 1;
    }
  }
  return {FindStepPeak(problem, MemoryOf(choices, best.picks())), best.picks()};
}

std::optional<std::vector<int32_t>> PickInSchedule(const PlanningProblem& problem, Choices& choices, int64_t limit,
                                                   const StepBound& bound, const LearnOwnPeak& learn) {
  LearnAll(choices, learn);
  const Timeline timeline(problem);
  std::vector<int32_t> cheapest;
  for (size_t b = 0; b < choices.size(); ++b) {
    const auto excess = [&](const Choice& choice) { return ExcessSeconds(bound, b, choice.saved_bytes, choice.seconds); };
    const auto least = std::min_element(choices[b].begin(), choices[b].end(),
                                        [&](const Choice& x, const Choice& y) { return excess(x) < excess(y); });
    cheapest.push_back(static_cast<int32_t>(least - choices[b].begin()));
  }
  Picked picked(problem, timeline, choices, std::move(cheapest));
  if (!picked.Repair(limit)) {
    picked = Picked(problem, timeline, choices, FindLeastInSchedule(problem, choices, learn).picks);
    if (picked.Peak() > limit) return std::nullopt;
  }
  picked.Improve(limit);
  picked.Trade(limit);
  auto better = Search(timeline, choices, bound, limit).FindBest(picked.Seconds());
  return better.has_value() ? std::move(better) : picked.picks();
}

}  // namespace tidetape::planner
