// Threads of the link inside a training process.
#ifndef TIDETAPE_AGENT_LINK_LINK_THREAD_H_
#define TIDETAPE_AGENT_LINK_LINK_THREAD_H_

#include <signal.h>

namespace tidetape::link {

// While it lives, threads started by this thread take no signals: those belong to the training (Python's handlers, the launcher).
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_LINK_THREAD_H_
