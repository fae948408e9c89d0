#include "server/messages/tape_assembler.h"

#include "absl/strings/str_cat.h"

namespace tidetape::server {

absl::StatusOr<std::optional<v1::BlockTape>> TapeAssembler::Add(const Sender& sender, const v1::TapeChunk& chunk) {
  const std::string where =
      absl::StrCat("job '", sender.job, "', rank ", sender.rank, ", tape ", absl::Hex(chunk.structure_hash(), absl::kZeroPad16),
                   ", chunk ", chunk.index(), " of ", chunk.count(), ": ");
  const auto size = static_cast<int64_t>(chunk.data().size());
  if (size > options_.chunk_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(where, size, " bytes, at most ", options_.chunk_bytes, " are allowed"));
  }
  // Without this an endless row of empty chunks would never be refused.
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat(where, "the chunk is empty"));

  Partial& partial = partials_[chunk.structure_hash()];
  if (partial.next_index == 0) partial.count = chunk.count();
  if (chunk.index() != partial.next_index || chunk.count() != partial.count || chunk.index() >= chunk.count()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "expected chunk ", partial.next_index, " of ", partial.count, "; chunks of a tape come in order"));
  }
  if (held_bytes_ + size > options_.tape_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(where, "unfinished tapes of this stream exceed ", options_.tape_bytes, " bytes"));
  }
  if (!budget_->Take(size)) {
    return absl::UnavailableError(
        absl::StrCat(where, "the agents send more tapes at once than the server holds; connect again later"));
  }
  partial.data += chunk.data();
  held_bytes_ += size;
  ++partial.next_index;
  if (partial.next_index < partial.count) return std::nullopt;

  v1::BlockTape tape;
  const bool parsed = tape.ParseFromString(partial.data);
  held_bytes_ -= static_cast<int64_t>(partial.data.size());
  returned_bytes_ += static_cast<int64_t>(partial.data.size());
  partials_.erase(chunk.structure_hash());
  if (!parsed) return absl::InvalidArgumentError(absl::StrCat(where, "the chunks do not make a BlockTape"));
  if (tape.structure_hash() != chunk.structure_hash()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "the tape itself says structure hash ", absl::Hex(tape.structure_hash(), absl::kZeroPad16)));
  }
  return tape;
}

}  // namespace tidetape::server
