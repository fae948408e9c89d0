// Tells a process from the children that it forks.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_OWNER_PROCESS_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_OWNER_PROCESS_H_

#include <sys/types.h>
#include <unistd.h>

#include <thread>
#include <utility>

namespace tidetape::collectives {

// A forked child has copies of a transport's objects and descriptors, but none of its threads. Destroying the copies must not speak
// to peers in the parent's name, and must not wait for threads that are not there.
class OwnerProcess {
 public:
  bool IsHere() const { return getpid() == pid_; }
  // Gives up the handle of a thread that this process does not have.
  static void Abandon(std::thread thread) { static_cast<void>(new std::thread(std::move(thread))); }

 private:
  const pid_t pid_ = getpid();
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_OWNER_PROCESS_H_
