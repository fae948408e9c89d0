// Every plan of a tape, fast enough for tapes of 18 intermediate storages: sets are bits, and all 2^18 sets are tried.
//
// Shares no code with the planner, nor with the oracle, which says the same of one plan more slowly.
#ifndef TIDETAPE_PLANNER_TESTING_ENUMERATION_H_
#define TIDETAPE_PLANNER_TESTING_ENUMERATION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/problem.h"

namespace tidetape::planner {

class Enumeration {
 public:
  struct Plan {
    uint32_t saved = 0;  // bit i: the i-th intermediate storage
    int64_t bytes = 0;
    double seconds = 0;
  };

  // The tape has at most 24 intermediate storages and 64 ops. Keeps a reference to it.
  explicit Enumeration(const BlockTape& tape);

  // All plans that an agent could follow, by rising `saved`.
  const std::vector<Plan>& plans() const { return plans_; }
  std::vector<int32_t> Saved(const Plan& plan) const;

  // Plans that no other one beats in both bytes and seconds, by rising bytes and falling seconds.
  std::vector<Plan> Best() const;

 private:
  struct OpBits {
    bool replayable = true;
    uint32_t spoils = 0;     // storages that must not be saved where the op runs
    uint64_t needs = 0;      // ops that run as well
    std::vector<int> reads;  // storages in their last version, by bit
    double seconds = 0;
  };

  std::optional<uint64_t> Replayed(uint32_t saved) const;

  const BlockTape& tape_;
  std::vector<int32_t> storage_of_bit_;
  std::vector<OpBits> ops_;
  std::vector<int> last_writer_;  // by bit; -1: none
  uint32_t consumed_ = 0;
  std::vector<Plan> plans_;
};

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_TESTING_ENUMERATION_H_
