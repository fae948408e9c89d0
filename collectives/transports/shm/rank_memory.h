// One rank's shared memory as a process maps it: a signal board, then the arena, with the shared region laid over the arena.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_RANK_MEMORY_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_RANK_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/transports/common/signal_board.h"
#include "collectives/transports/common/unique_fd.h"
#include "collectives/transports/rendezvous/rendezvous.h"

namespace tidetape::collectives {

// Bytes of memory that are mapped for one rank.
struct ShmUsage {
  // The rank's alone: its signals, and its arena without the shared region.
  uint64_t private_bytes = 0;
  // Once a host, whatever the number of ranks.
  uint64_t shared_bytes = 0;
};

class RankMemory {
 public:
  // The rank's own file, memory reserved except for the shared region. `folder` as in MakeAnonymousFile.
  static absl::StatusOr<UniqueFd> MakeFile(const std::string& folder, const GroupOptions& options);
  // The file behind the shared region, for one rank a host to make.
  static absl::StatusOr<UniqueFd> MakeSharedRegionFile(const std::string& folder, const GroupOptions& options);

  // Maps a rank's file, and `shared_region`'s over it where the options have one. The files may be closed afterwards.
  static absl::StatusOr<RankMemory> Map(int file, int shared_region, const GroupOptions& options);

  RankMemory(RankMemory&& other) noexcept;
  RankMemory& operator=(RankMemory&&) = delete;
  ~RankMemory();

  SignalBoard& board() { return board_; }
  absl::Span<std::byte> arena() { return arena_; }
  ShmUsage usage() const { return {mapping_.size() - shared_bytes_, shared_bytes_}; }
  // Fills the page tables, so that the first stores do not fault. An optimisation: does nothing where the kernel cannot.
  void Populate();

 private:
  RankMemory(absl::Span<std::byte> mapping, uint64_t board_bytes, const GroupOptions& options);

  absl::Span<std::byte> mapping_;
  absl::Span<std::byte> arena_;
  uint64_t shared_bytes_ = 0;
  SignalBoard board_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_SHM_RANK_MEMORY_H_
