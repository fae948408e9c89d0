// Saved-tensor hooks in C++: what autograd packs inside a recording becomes a handle on the tape.
//
// torch offers default hooks to Python only. Autograd asks its default engine for them, so the tape stands in front of that engine
// and passes everything else on to it.
#ifndef TIDETAPE_AGENT_TAPE_SAVED_HOOKS_H_
#define TIDETAPE_AGENT_TAPE_SAVED_HOOKS_H_

namespace tidetape::agent {

// Stands in front of the default engine. Idempotent; call it after `import torch`, before the first recording.
void InstallSavedHooks();

// A user's saved-tensor hooks (or none allowed) are in force on this thread: what they see must stay as it is without a tape.
bool UserHooksInForce();

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_SAVED_HOOKS_H_
