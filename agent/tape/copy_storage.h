// Copies of storages.
#ifndef TIDETAPE_AGENT_TAPE_COPY_STORAGE_H_
#define TIDETAPE_AGENT_TAPE_COPY_STORAGE_H_

#include "agent/tape/tape.h"

namespace tidetape::agent {

// A storage of the same device, size and bytes. The caller keeps the interception off.
StorageRef CopyStorage(c10::StorageImpl& original);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_COPY_STORAGE_H_
