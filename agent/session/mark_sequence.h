// The backward of one block execution as seen over many steps: its marks by site, each with the most bytes that it ever had.
#ifndef TIDETAPE_AGENT_SESSION_MARK_SEQUENCE_H_
#define TIDETAPE_AGENT_SESSION_MARK_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "agent/measure/step_profile.h"

namespace tidetape::agent {

class MarkSequence {
 public:
  struct Mark {
    uint64_t key = 0;  // what begins it: the site that is read, or that was released before
    std::vector<uint64_t> reads;
    std::vector<uint64_t> releases;
    int64_t peak_bytes = 0;
    int64_t start_bytes = 0;
  };

  // Takes in the marks of one step. Marks in another order than those known replace nothing and are left out.
  // Returns the largest difference of a peak to what was known of its mark; 0 for the first step.
  int64_t Add(const std::vector<BackwardMark>& marks);
  void Add(const MarkSequence& other) { Merge(other.marks_); }

  bool empty() const { return marks_.empty(); }
  const std::vector<Mark>& marks() const { return marks_; }

 private:
  int64_t Merge(const std::vector<Mark>& added);

  std::vector<Mark> marks_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_MARK_SEQUENCE_H_
