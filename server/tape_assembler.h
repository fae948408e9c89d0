// Puts the chunks of tapes together, within bounds. One a stream; not thread-safe.
#ifndef TIDETAPE_SERVER_TAPE_ASSEMBLER_H_
#define TIDETAPE_SERVER_TAPE_ASSEMBLER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/validate.h"
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

  TapeAssembler() : TapeAssembler(Options()) {}
  explicit TapeAssembler(const Options& options) : options_(options) {}

  // Takes a chunk; returns the tape with its last one, parsed and of the announced hash. Chunks of different tapes may alternate.
  // An error names the sender, the tape and the chunk; the assembler must not be used afterwards.
  absl::StatusOr<std::optional<v1::BlockTape>> Add(const Sender& sender, const v1::TapeChunk& chunk);

 private:
  struct Partial {
    std::string data;
    int32_t next_index = 0;
    int32_t count = 0;
  };

  const Options options_;
  std::map<uint64_t, Partial> partials_;
  int64_t held_bytes_ = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TAPE_ASSEMBLER_H_
