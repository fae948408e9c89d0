#include "collectives/transports/common/call_check.h"

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

absl::Status CheckPeerAndSignal(const CallBounds& bounds, int peer, int signal) {
  if (peer < 0 || peer >= bounds.size)
    return absl::InvalidArgumentError(absl::StrCat("the group has ranks 0 to ", bounds.size - 1));
  if (signal < 0 || signal >= bounds.signals) {
    return absl::InvalidArgumentError(absl::StrCat("signal indices are 0 to ", bounds.signals - 1));
  }
  return absl::OkStatus();
}

}  // namespace

std::string PutName(int peer, uint64_t offset, uint64_t bytes, int signal) {
  return absl::StrCat("PutSignal(rank ", peer, ", offset ", offset, ", ", bytes, " bytes, signal ", signal, ")");
}

std::string SignalName(absl::string_view call, int peer, int signal) {
  return absl::StrCat(call, "(rank ", peer, ", signal ", signal, ")");
}

absl::Status CheckPut(const CallBounds& bounds, int peer, uint64_t offset, uint64_t bytes, int signal) {
  if (absl::Status status = CheckPeerAndSignal(bounds, peer, signal); !status.ok()) {
    return InCall(status, PutName(peer, offset, bytes, signal));
  }
  if (offset > bounds.arena_bytes || bytes > bounds.arena_bytes - offset) {
    return absl::OutOfRangeError(
        absl::StrCat(PutName(peer, offset, bytes, signal), ": the arena has ", bounds.arena_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckSignal(const CallBounds& bounds, absl::string_view call, int peer, int signal) {
  return InCall(CheckPeerAndSignal(bounds, peer, signal), SignalName(call, peer, signal));
}

absl::Status InCall(const absl::Status& status, absl::string_view call) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(call, ": ", status.message()));
}

}  // namespace tidetape::collectives
