// The tapes that this process recorded, kept for every server that may ask.
#ifndef TIDETAPE_AGENT_LINK_TAPE_CACHE_H_
#define TIDETAPE_AGENT_LINK_TAPE_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "planner/model/problem.h"

namespace tidetape::link {

// Thread-safe. A tape stays a struct until it is first sent, and is serialized by the thread that sends it.
class TapeCache {
 public:
  // False where a tape of this structure is there already; it stays.
  bool Put(planner::BlockTape tape);
  bool Has(uint64_t structure_hash) const;

  // A position behind all tapes so far, for Since.
  size_t size() const;
  // Structure hashes in order of arrival, from a position on.
  std::vector<uint64_t> Since(size_t position) const;

  // The tape as a serialized tidetape.v1.BlockTape, or null.
  std::shared_ptr<const std::string> Serialized(uint64_t structure_hash);

 private:
  struct Entry {
    std::shared_ptr<const planner::BlockTape> tape;  // until it is serialized
    std::shared_ptr<const std::string> bytes;
  };

  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
  std::vector<uint64_t> arrivals_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_TAPE_CACHE_H_
