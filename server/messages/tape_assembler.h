// Puts the chunks of tapes together, within bounds. One a stream; not thread-safe.
#ifndef TIDETAPE_SERVER_MESSAGES_TAPE_ASSEMBLER_H_
#define TIDETAPE_SERVER_MESSAGES_TAPE_ASSEMBLER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/messages/byte_budget.h"
#include "server/messages/validate.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

class TapeAssembler {
 public:
  struct Options {
    // Most bytes in one chunk.
    int64_t chunk_bytes = int64_t{1} << 20;
    // Most bytes in one tape, and in all unfinished tapes of a stream together.
    int64_t tape_bytes = int64_t{256} << 20;
  };

  // `budget` outlives the assembler.
  explicit TapeAssembler(ByteBudget* budget) : TapeAssembler(budget, Options()) {}
  TapeAssembler(ByteBudget* budget, const Options& options) : options_(options), budget_(budget) {}
  ~TapeAssembler() { budget_->Return(held_bytes_ + returned_bytes_); }
  TapeAssembler(const TapeAssembler&) = delete;
  TapeAssembler& operator=(const TapeAssembler&) = delete;

  // Takes a chunk; returns the tape with its last one, parsed and of the announced hash. Chunks of different tapes may alternate.
  // An error names the sender, the tape and the chunk; the assembler must not be used afterwards. Unavailable where the streams of
  // all agents hold too much at the moment.
  absl::StatusOr<std::optional<v1::BlockTape>> Add(const Sender& sender, const v1::TapeChunk& chunk);

  // The tapes that were returned are done with: only now others may use their bytes.
  void Done() {
    budget_->Return(returned_bytes_);
    returned_bytes_ = 0;
  }

 private:
  struct Partial {
    std::string data;
    int32_t next_index = 0;
    int32_t count = 0;
  };

  const Options options_;
  ByteBudget* const budget_;
  std::map<uint64_t, Partial> partials_;
  int64_t held_bytes_ = 0;      // of tapes that are not complete
  int64_t returned_bytes_ = 0;  // of tapes that were returned and are in use
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_MESSAGES_TAPE_ASSEMBLER_H_
