// The memory of all ranks as ranges of bytes: what each holds, who wrote it last and who has read it since.
//
// Accesses must come in an order that respects HappensBefore. An access that is not ordered after the last write, or a write that
// is not ordered after all reads since, is a race: in some interleaving the two overlap. Checking against the last write alone is
// enough, because that write was itself checked against all before it.
#ifndef TIDETAPE_COLLECTIVES_VERIFIER_MEMORY_MODEL_H_
#define TIDETAPE_COLLECTIVES_VERIFIER_MEMORY_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "collectives/schedule.h"
#include "collectives/verifier/contents.h"
#include "collectives/verifier/happens_before.h"

namespace tidetape::collectives {

// One buffer of one rank. `run` tells the gradients and outputs of different collectives apart; 0 for the arena.
struct BufferKey {
  int32_t rank = 0;
  Buffer buffer = Buffer::kArena;
  int32_t run = 0;
  int32_t index = 0;

  friend auto operator<=>(const BufferKey&, const BufferKey&) = default;
};

// A part of a range that was asked for.
struct Part {
  int64_t offset = 0;
  int64_t bytes = 0;
  Content content;
};

class MemoryModel {
 public:
  MemoryModel(const Programs& programs, const HappensBefore& order) : programs_(programs), order_(order) {}

  // Makes a buffer that nobody has touched.
  void Add(const BufferKey& key, int64_t bytes, const Content& content);

  // The parts of [offset, offset + bytes), after checking that `by` may read them. FailedPrecondition "out of bounds" or "race".
  absl::Status Read(const Event& by, const BufferKey& key, int64_t offset, int64_t bytes, std::vector<Part>* parts);
  // Likewise for a write: `content_at` gives the new content for each part, from its place and its old content.
  absl::Status Write(const Event& by, const BufferKey& key, int64_t offset, int64_t bytes,
                     const std::function<Content(const Part&)>& content_at);

 private:
  struct Segment {
    Content content;
    std::vector<Event> write;  // the last one, or none
    std::vector<Event> reads;  // since then
  };
  struct Memory {
    int64_t bytes = 0;
    std::map<int64_t, Segment> segments;  // by first byte; each ends where the next begins
  };

  // Iterators to the segments of exactly this range.
  absl::Status Cut(const Event& by, const BufferKey& key, int64_t offset, int64_t bytes, Memory** memory);
  absl::Status CheckAfter(const std::vector<Event>& earlier, const Event& by, bool earlier_writes, bool writes,
                          const BufferKey& key, int64_t offset) const;
  std::string Text(const Event& event) const;

  const Programs& programs_;
  const HappensBefore& order_;
  std::map<BufferKey, Memory> memories_;
};

// As in "byte 64 of rank 3's arena".
std::string PlaceText(const BufferKey& key, int64_t offset);

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VERIFIER_MEMORY_MODEL_H_
