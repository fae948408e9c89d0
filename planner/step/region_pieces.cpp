#include "planner/step/region_pieces.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "planner/tape/plan_space.h"

namespace tidetape::planner {
namespace {

constexpr double kMostPieces = 256;     // of one segment of the hull
constexpr double kMostPeakPieces = 16;  // of one segment of the hull at the peak
// A piece of the hull is met again at several own peaks: cut more coarsely there.
constexpr double kPeakGrain = 3;

class Cutter {
 public:
  Cutter(const RegionBounds& region, const PieceNeeds& needs, int32_t id, std::vector<Choice>& pieces)
      : region_(region), needs_(needs), id_(id), pieces_(pieces) {}

  void Cut() {
    const std::vector<HullPoint>& hull = region_.hull;
    if (Excess(hull.front()) <= needs_.most_excess) CutByPeak(hull.front().bytes, hull.front().seconds);
    for (size_t i = 1; i < hull.size(); ++i) CutSegment(hull[i - 1], hull[i]);
  }

 private:
  double Excess(const HullPoint& point) const { return needs_.excess(point.bytes, point.seconds); }

  // As far as the excess allows: plans with bytes from one piece's to just below the next one's take what the hull asks there.
  void CutSegment(const HullPoint& rich, const HullPoint& lean) {
    const double at_rich = Excess(rich), at_lean = Excess(lean), most = needs_.most_excess;
    if (at_rich > most && at_lean > most) return;
    const double from = at_lean > most ? (at_lean - most) / (at_lean - at_rich) : 0;  // as shares from lean to rich
    const double to = at_rich > most ? (most - at_lean) / (at_rich - at_lean) : 1;
    const double drop = lean.seconds - rich.seconds, width = static_cast<double>(rich.bytes - lean.bytes);
    const double count = std::clamp(std::ceil(drop * (to - from) / needs_.grain_seconds), 1.0, kMostPieces);
    const double step = (to - from) / count;
    for (int k = 0; k < count; ++k) {
      CutByPeak(lean.bytes + static_cast<int64_t>(std::ceil(width * (from + step * k))),
                lean.seconds - drop * (from + step * (k + 1)));
    }
  }

  // Plans of at least so many bytes and seconds: where their own peak leaves less room than that asks for, the hull at the peak
  // asks for more seconds. Plans with an own peak from one piece's to just below the next one's take what it asks there.
  void CutByPeak(int64_t bytes, double seconds) {
    const std::vector<HullPoint>& hull = region_.hull_at_peak;
    const OwnPeakRange& range = region_.own_peaks;
    // On the hull at the peak.
    int64_t room = std::max({int64_t{0}, bytes + range.standing_bytes - range.least_bytes, hull.back().bytes});
    auto rich = std::partition_point(hull.begin(), hull.end(), [&](const HullPoint& point) { return point.bytes > room; });
    double asked = BoundSeconds(hull, room);
    while (asked > seconds && rich != hull.begin()) {
      --rich;
      const double width = static_cast<double>(rich->bytes - room), target = std::max(seconds, rich->seconds);
      const double share = (asked - target) / (asked - rich->seconds);
      const double count = std::clamp(std::ceil((asked - target) / (kPeakGrain * needs_.grain_seconds)), 1.0, kMostPeakPieces);
      for (int k = 0; k < count; ++k) {
        Append(bytes, room + static_cast<int64_t>(std::ceil(width * share * k / count)),
               asked + (target - asked) * (k + 1) / count);
      }
      room += static_cast<int64_t>(std::ceil(width * share));
      asked = target;
    }
    Append(bytes, room, seconds);
  }

  void Append(int64_t bytes, int64_t room_at_peak, double seconds) {
    const int64_t own_peak = region_.own_peaks.least_bytes + room_at_peak;
    if (own_peak > needs_.most_own_peak || needs_.excess(bytes, seconds) > needs_.most_excess) return;
    pieces_.push_back({.saved_bytes = bytes, .own_peak_bytes = own_peak, .seconds = seconds, .id = id_});
  }

  const RegionBounds& region_;
  const PieceNeeds& needs_;
  const int32_t id_;
  std::vector<Choice>& pieces_;
};

}  // namespace

void AppendPieces(const RegionBounds& region, const PieceNeeds& needs, int32_t id, std::vector<Choice>& pieces) {
  Cutter(region, needs, id, pieces).Cut();
}

}  // namespace tidetape::planner
