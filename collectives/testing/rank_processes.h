// Runs the ranks of a test as real processes.
#ifndef TIDETAPE_COLLECTIVES_TESTING_RANK_PROCESSES_H_
#define TIDETAPE_COLLECTIVES_TESTING_RANK_PROCESSES_H_

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidetape::collectives {

// How one rank's process ended.
struct RankOutcome {
  // What the body returned. UNKNOWN where the process ended without saying so.
  absl::Status status;
  // The signal that ended the process, or 0. A process that ran past the limit is killed and marked as overdue.
  int killed_by = 0;
  bool overdue = false;
};

std::ostream& operator<<(std::ostream& out, const RankOutcome& outcome);

// Forks `ranks` processes, runs `body(rank)` in each, and collects how they ended; none is left when it returns. The caller must
// have no other threads. A child leaves by _exit, so gtest's expectations have no effect in it: return a status instead.
std::vector<RankOutcome> RunRanks(int ranks, absl::Duration limit, const std::function<absl::Status(int rank)>& body);

// A folder of its own, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  // Removes what is in it.
  void Clear();

 private:
  std::string path_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_RANK_PROCESSES_H_
