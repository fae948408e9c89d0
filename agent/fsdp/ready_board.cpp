#include "agent/fsdp/ready_board.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace tidetape::agent {

absl::Status ReadyBoard::Say(int32_t peer, int32_t slot, int32_t signal, int64_t generation) {
  if (said_.empty() || said_.back() != generation) said_.push_back(generation);
  const auto* bytes = reinterpret_cast<const std::byte*>(&said_.back());
  return transport_.PutSignal(peer, {bytes, sizeof(int64_t)}, Place(transport_.rank(), slot), signal);
}

absl::Status ReadyBoard::Check(int32_t peer, int32_t slot, int64_t generation) const {
  int64_t told = 0;
  std::memcpy(&told, transport_.arena().data() + Place(peer, slot), sizeof told);
  if (told == generation) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rank ", peer, " gathers under pacing generation ", told, ", this rank under ",
                                                    generation, "; this is a fault of Tidetape's, please report it"));
}

}  // namespace tidetape::agent
