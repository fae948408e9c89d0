// A memory limit in words, for events and reasons.
#ifndef TIDETAPE_SERVER_TEXT_LIMIT_TEXT_H_
#define TIDETAPE_SERVER_TEXT_LIMIT_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace tidetape::server {

// Bytes; 0: the least-memory plan; negative: keep everything.
inline std::string DescribeLimit(int64_t bytes) {
  if (bytes < 0) return "keep everything";
  if (bytes == 0) return "least memory";
  return absl::StrCat(bytes, " bytes");
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TEXT_LIMIT_TEXT_H_
