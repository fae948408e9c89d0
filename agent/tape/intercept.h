// Which dispatch keys the tape listens on. The only file that knows.
//
// A boxed fallback on DispatchKey::Fake sees every op below autograd, autocast and modes, once the key is switched on for a thread.
// Another on DispatchKey::DeferredInit, above all of these, sees ops that may write: outside of blocks only writes matter, and
// torch's own ops that write to nothing pass by at no cost. No kernel of torch 2.14 uses either key; where another fallback sits on
// one, or torch is of another version, nothing is intercepted.
#ifndef TIDETAPE_AGENT_TAPE_INTERCEPT_H_
#define TIDETAPE_AGENT_TAPE_INTERCEPT_H_

#include <cstdint>
#include <string>

namespace tidetape::agent {

// Registers the fallbacks, once a process. Returns an empty string, or in one line why this torch cannot be intercepted.
const std::string& InstallInterception();

// Switches the interception on or off for the calling thread. While it is on, ops go to Recorder::Current(); if that is null, they
// are passed on as they are.
void SetIntercepting(bool on);
bool Intercepting();

// The same for the watch: writes are checked against the open tapes, and when there is none left it switches itself off.
void SetWatchingWrites(bool on);
bool WatchingWrites();

// Ops that went through either fallback on the calling thread so far.
int64_t InterceptedOps();

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_INTERCEPT_H_
