// Notices within moments that a process on this host has ended or has left the group, from a thread that sleeps otherwise.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_PROCESS_WATCH_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_PROCESS_WATCH_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/transports/common/group_health.h"
#include "collectives/transports/common/owner_process.h"
#include "collectives/transports/common/unique_fd.h"

namespace tidetape::collectives {

// A process is watched through a pidfd that it made of itself: right across process namespaces, and deaf to children that hold on
// to its sockets. Its word that it leaves comes through a SOCK_SEQPACKET connection.
class ProcessWatch {
 public:
  struct Process {
    int rank = 0;
    UniqueFd pidfd;
    UniqueFd connection;
  };

  // Reports to `health` until destroyed.
  static absl::StatusOr<std::unique_ptr<ProcessWatch>> Start(std::vector<Process> processes, std::shared_ptr<GroupHealth> health);
  ~ProcessWatch();

  // Tells all watched processes that this one leaves; `lost_rank` is the reason, or -1.
  void SayGoodbye(int lost_rank);

 private:
  ProcessWatch(std::vector<Process> processes, std::shared_ptr<GroupHealth> health, UniqueFd stop);
  void Run();
  // True where the process is done with.
  bool Look(const Process& process, bool ended);

  const OwnerProcess owner_;
  const std::vector<Process> processes_;
  const std::shared_ptr<GroupHealth> health_;
  const UniqueFd stop_;
  std::thread thread_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_PROCESS_WATCH_H_
