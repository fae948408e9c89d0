#include "collectives/transports/nccl/agreement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

constexpr int kRecordSignal = 0;

// What a rank says, as it lies in the others' arenas. Reasons are cut.
struct Record {
  int32_t failed = 0;
  uint32_t length = 0;
  std::array<char, 1016> text = {};

  Record() = default;
  Record(bool has_failed, absl::string_view said) : failed(has_failed), length(std::min(said.size(), text.size())) {
    std::copy_n(said.begin(), length, text.begin());
  }
  absl::string_view said() const { return {text.data(), std::min<size_t>(length, text.size())}; }
};

// Two rounds may be under way: a rank that has heard from all begins the next one while others still read.
constexpr uint64_t kRoundsAtOnce = 2;

}  // namespace

uint64_t Agreement::ArenaBytes(int size) { return kRoundsAtOnce * static_cast<uint64_t>(size) * sizeof(Record); }

absl::Status Agreement::Reach(const absl::Status& own, absl::string_view what, absl::string_view value, absl::Time deadline) {
  const int size = control_.size();
  const uint64_t base = rounds_++ % kRoundsAtOnce * static_cast<uint64_t>(size) * sizeof(Record);
  const Record record(!own.ok(), own.ok() ? std::string(value) : own.ToString());
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&record), sizeof(record));
  const uint64_t own_place = base + static_cast<uint64_t>(control_.rank()) * sizeof(Record);
  for (int peer = 0; peer < size; ++peer) {
    absl::Status status = control_.PutSignal(peer, bytes, own_place, kRecordSignal);
    if (!status.ok()) return own.ok() ? status : own;
  }
  std::vector<Record> said(static_cast<size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    absl::Status status = control_.WaitSignal(peer, kRecordSignal, 1, deadline);
    if (!status.ok()) return own.ok() ? status : own;
    std::memcpy(&said[static_cast<size_t>(peer)], control_.arena().data() + base + static_cast<uint64_t>(peer) * sizeof(Record),
                sizeof(Record));
  }
  // `record` is on this stack.
  if (absl::Status status = control_.Flush(deadline); !status.ok()) return status;
  if (!own.ok()) return own;
  for (int peer = 0; peer < size; ++peer) {
    const Record& theirs = said[static_cast<size_t>(peer)];
    if (theirs.failed) return absl::UnavailableError(absl::StrCat("rank ", peer, " cannot take part: ", theirs.said()));
  }
  for (int peer = 0; peer < size; ++peer) {
    const Record& theirs = said[static_cast<size_t>(peer)];
    if (theirs.said() == said[0].said()) continue;
    return absl::FailedPreconditionError(absl::StrCat("the ranks do not mean the same group: rank ", peer, " has ", what, " ",
                                                      theirs.said(), ", rank 0 has ", said[0].said()));
  }
  return absl::OkStatus();
}

absl::Status CheckAlive(Transport& control, int peer) {
  const absl::Status status = control.WaitSignal(peer, Agreement::kNeverSignal, 1, absl::InfinitePast());
  if (absl::IsDeadlineExceeded(status)) return absl::OkStatus();
  // Without the name of the control transport's call, which is none that the caller has made.
  const size_t name = status.message().find("): ");
  return name == absl::string_view::npos ? status : absl::Status(status.code(), status.message().substr(name + 3));
}

}  // namespace tidetape::collectives
