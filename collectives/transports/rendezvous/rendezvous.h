// How the ranks of a group find each other and make sure that they mean the same group.
//
// Each rank sets one record: where it can be reached, what it thinks the group is, or why it cannot take part. Each rank reads all
// records and compares them with rank 0's, so that all ranks see the same verdict.
//
// The token is the group's secret: connections that do not show it are refused. Pass one to all ranks from outside (from the job's
// own secret), or leave it empty: then rank 0 draws one and sets it in the store, and the group is as closed as the store is.
// Tokens are compared in constant time. They cross TCP in the clear, as the tensors do: use a network that others cannot read.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_RENDEZVOUS_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_RENDEZVOUS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/transports/rendezvous/store.h"

namespace tidetape::collectives {

// An arena range whose pages all ranks of one host share; see docs/transports.md. Empty where bytes is 0. Both page-aligned.
struct SharedRegion {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct GroupOptions {
  int rank = 0;
  int size = 1;
  // Signal indices for each peer.
  int signals = 64;
  // The same on all ranks. Rounded up to whole pages by the transport.
  uint64_t arena_bytes = 0;
  SharedRegion shared_region;
  // Of the layout that the ranks agree on, printable. Any text; compared at the start.
  std::string layout_hash;
  // Names the group in the store: unique for each group and each start of the job.
  std::string name = "tidetape";
  // Empty: rank 0 draws one.
  std::string token;
  // How long all of joining may take, waiting for the last rank included.
  absl::Duration join_timeout = absl::Seconds(120);
};

// INVALID_ARGUMENT where the options make no sense.
absl::Status ValidateOptions(const GroupOptions& options);

// A token as connections show it: the text's bytes cut or zero-padded to 32, or 32 random ones.
using Token = std::array<unsigned char, 32>;
// Takes the same time wherever they differ.
bool SameToken(const Token& a, const Token& b);

// One rank as the others need to know it.
struct Member {
  // Equal for ranks that can share memory. See HostId().
  std::string host_id;
  // Abstract Unix socket and "address port"; empty where the rank does not use that transport.
  std::string shm_address;
  std::string tcp_address;
};

struct Roster {
  std::vector<Member> members;  // by rank
  Token token;
};

// Identifies what ranks must have in common to share memory through a Unix socket: the kernel and its network namespace.
absl::StatusOr<std::string> HostId();

// Sets the own record, waits for all others, compares. DEADLINE_EXCEEDED names the first rank that is missing; FAILED_PRECONDITION
// names the rank and field that differ, with both values; UNAVAILABLE a rank that cannot take part, with its reason.
absl::StatusOr<Roster> Meet(Store& store, const GroupOptions& options, const Member& self, absl::Time deadline);

// Instead of Meet: tells the other ranks why this one cannot take part, so that they need not wait.
void Decline(Store& store, const GroupOptions& options, const absl::Status& reason);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_RENDEZVOUS_H_
