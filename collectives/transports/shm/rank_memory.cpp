#include "collectives/transports/shm/rank_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/transports/shm/anonymous_file.h"

// Linux 5.14; absent from older headers.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tidetape::collectives {
namespace {

uint64_t WholePages(uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

uint64_t BoardBytes(const GroupOptions& options) { return WholePages(SignalBoard::BytesFor(options.size, options.signals)); }

uint64_t FileBytes(const GroupOptions& options) { return BoardBytes(options) + WholePages(options.arena_bytes); }

absl::Status MapError(uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes of an arena: ", std::strerror(errno)));
}

absl::Status CheckFileSize(int file, uint64_t bytes) {
  struct stat status = {};
  if (fstat(file, &status) == 0 && static_cast<uint64_t>(status.st_size) == bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("a file of shared memory has ", status.st_size, " bytes instead of ", bytes));
}

}  // namespace

absl::StatusOr<UniqueFd> RankMemory::MakeFile(const std::string& folder, const GroupOptions& options) {
  const uint64_t bytes = FileBytes(options);
  const uint64_t hole = BoardBytes(options) + options.shared_region.offset;
  const uint64_t after = hole + options.shared_region.bytes;
  return MakeAnonymousFile(folder, bytes, {{0, hole}, {after, bytes - after}}, absl::StrCat("the arena of rank ", options.rank));
}

absl::StatusOr<UniqueFd> RankMemory::MakeSharedRegionFile(const std::string& folder, const GroupOptions& options) {
  const uint64_t bytes = options.shared_region.bytes;
  return MakeAnonymousFile(folder, bytes, {{0, bytes}}, "the region that this host's ranks share");
}

absl::StatusOr<RankMemory> RankMemory::Map(int file, int shared_region, const GroupOptions& options) {
  const uint64_t bytes = FileBytes(options);
  if (absl::Status status = CheckFileSize(file, bytes); !status.ok()) return status;
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (start == MAP_FAILED) return MapError(bytes);
  RankMemory memory({static_cast<std::byte*>(start), bytes}, BoardBytes(options), options);
  if (const SharedRegion& shared = options.shared_region; shared.bytes > 0) {
    if (absl::Status status = CheckFileSize(shared_region, shared.bytes); !status.ok()) return status;
    void* place = memory.arena_.data() + shared.offset;
    if (mmap(place, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared_region, 0) == MAP_FAILED) {
      return MapError(shared.bytes);
    }
  }
  return memory;
}

RankMemory::RankMemory(absl::Span<std::byte> mapping, uint64_t board_bytes, const GroupOptions& options)
    : mapping_(mapping),
      arena_(mapping.subspan(board_bytes, options.arena_bytes)),
      shared_bytes_(options.shared_region.bytes),
      board_(mapping, options.size, options.signals, true) {}

RankMemory::RankMemory(RankMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, {})), arena_(other.arena_), shared_bytes_(other.shared_bytes_), board_(other.board_) {}

RankMemory::~RankMemory() {
  if (!mapping_.empty()) munmap(mapping_.data(), mapping_.size());
}

void RankMemory::Populate() { madvise(mapping_.data(), mapping_.size(), MADV_POPULATE_WRITE); }

}  // namespace tidetape::collectives
