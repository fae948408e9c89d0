// Sites: names of values that survive from step to step.
//
// A site is a hash of how a value is made: op overload, output index, what the op reads, and the occurrence among equals. Sizes and
// scalars stay out of it, so that a site holds when shapes change.
#ifndef TIDETAPE_AGENT_TAPE_SITE_H_
#define TIDETAPE_AGENT_TAPE_SITE_H_

#include <cstdint>
#include <string_view>

namespace tidetape::agent {

using Site = uint64_t;

// The finalizer of SplitMix64 over both: order matters, one bit of input changes about half of the output.
inline uint64_t Mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash * 0x9e3779b97f4a7c15ULL + value + 0x632be59bd9b4e019ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// FNV-1a: the same on every machine, unlike std::hash.
inline uint64_t HashText(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_SITE_H_
