#include "server/job/constraints.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "server/text/limit_text.h"

namespace tidetape::server {

std::string ConstraintsEtag(const v1::Constraints& constraints) {
  // FNV-1a. absl's hashes differ from process to process.
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : constraints.SerializeAsString()) hash = (hash ^ byte) * 0x100000001b3;
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::string DescribeConstraints(const v1::Constraints& constraints) {
  if (constraints.disabled()) return "Tidetape is disabled, everything is kept";
  std::string text = absl::StrCat(
      "limit ", constraints.has_memory_limit_bytes() ? DescribeLimit(constraints.memory_limit_bytes()) : "the agents' own", ", ",
      constraints.pins_size(), " pins");
  if (constraints.frozen_generation() != 0) absl::StrAppend(&text, ", frozen at generation ", constraints.frozen_generation());
  return text;
}

}  // namespace tidetape::server
