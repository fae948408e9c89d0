// Tapes of one structure hash from different ranks.
#ifndef TIDETAPE_SERVER_MESSAGES_TAPE_MERGE_H_
#define TIDETAPE_SERVER_MESSAGES_TAPE_MERGE_H_

#include "tidetape/v1/tape.pb.h"

namespace tidetape::server {

// True where both have the same ops on the same storages, so that indices into one are good for the other. Sizes and costs may
// differ: a structure hash says nothing of them.
bool SameShape(const v1::BlockTape& a, const v1::BlockTape& b);

// Raises the bytes of `tape` to those of `other`, element by element: the worst rank's memory. Both have the same shape. True where
// anything grew.
bool RaiseBytes(const v1::BlockTape& other, v1::BlockTape& tape);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_MESSAGES_TAPE_MERGE_H_
