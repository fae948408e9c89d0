// Which dispatch key the tape listens on. The only file that knows.
//
// A boxed fallback on DispatchKey::Fake sees every op below autograd, autocast and modes, once the key is switched on for a thread.
// No kernel of torch 2.14 uses the key; where another fallback sits on it, or torch is of another version, nothing is intercepted.
#ifndef TIDETAPE_AGENT_TAPE_INTERCEPT_H_
#define TIDETAPE_AGENT_TAPE_INTERCEPT_H_

#include <cstdint>
#include <string>

namespace tidetape::agent {

// Registers the fallback, once a process. Returns an empty string, or in one line why this torch cannot be intercepted.
const std::string& InstallInterception();

// Switches the interception on or off for the calling thread. While it is on, ops go to Recorder::Current(); if that is null,
// writes are checked against the open tapes, and when there is none left the interception switches itself off.
void SetIntercepting(bool on);
bool Intercepting();

// Ops are intercepted and passed on as they are, whatever tapes there are: to measure what that alone costs.
void SetPassingOn(bool on);

// Ops that went through the fallback on the calling thread so far.
int64_t InterceptedOps();

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_INTERCEPT_H_
