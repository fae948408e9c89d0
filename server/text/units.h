// Bytes and seconds as people write and read them.
#ifndef TIDETAPE_SERVER_TEXT_UNITS_H_
#define TIDETAPE_SERVER_TEXT_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tidetape {

// "3.5GiB", "800MB", "1024" (bytes) as bytes; "min" is 0 (least memory), "max" is -1 (keep everything). InvalidArgument otherwise.
absl::StatusOr<int64_t> ParseLimit(const std::string& text);

// The same without "min" and "max", and with a sign.
absl::StatusOr<int64_t> ParseBytes(const std::string& text);

// Three significant digits and a binary unit, as in "3.50 GiB".
std::string FormatBytes(int64_t bytes);

// FormatBytes, or what 0 and -1 mean as a limit.
std::string FormatLimit(int64_t bytes);

// As in "12.3 ms".
std::string FormatSeconds(double seconds);

}  // namespace tidetape

#endif  // TIDETAPE_SERVER_TEXT_UNITS_H_
