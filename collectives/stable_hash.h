// A hash that is the same on every machine and in every release: FNV-1a, 64 bits. It finds accidents, not attacks.
#ifndef TIDETAPE_COLLECTIVES_STABLE_HASH_H_
#define TIDETAPE_COLLECTIVES_STABLE_HASH_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

class StableHash {
 public:
  void Add(std::string_view bytes) {
    for (unsigned char byte : bytes) {
      value_ = (value_ ^ byte) * 0x100000001b3u;
    }
  }
  // Its eight bytes, the least significant first.
  void Add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      value_ = (value_ ^ (static_cast<uint64_t>(number) >> shift & 0xff)) * 0x100000001b3u;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

// Sixteen hex digits, as all hashes are printed.
inline std::string HashText(uint64_t hash) { return absl::StrCat(absl::Hex(hash, absl::kZeroPad16)); }

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_STABLE_HASH_H_
