#include "server/text/units.h"

#include <cctype>
#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tidetape {

absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  static const auto& kUnits = *new std::map<std::string, double>{
      {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
  };
  size_t end = text.find_first_not_of("+-.0123456789eE");
  // The E of an exponent is followed by digits; an E that begins a unit does not occur.
  if (end == std::string::npos) end = text.size();
  size_t unit = end;
  while (unit < text.size() && std::isspace(static_cast<unsigned char>(text[unit]))) ++unit;
  double number = 0;
  const auto scale = kUnits.find(text.substr(unit));
  if (!absl::SimpleAtod(text.substr(0, end), &number) || scale == kUnits.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is no number of bytes; write 1500000000, 800MB or 3.5GiB (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)"));
  }
  const double bytes = std::round(number * scale->second);
  if (!(std::abs(bytes) < 0x1p62)) return absl::InvalidArgumentError(absl::StrCat("'", text, "' is out of range"));
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<int64_t> ParseLimit(const std::string& text) {
  if (text == "min") return 0;
  if (text == "max") return -1;
  auto bytes = ParseBytes(text);
  if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat(std::string(bytes.status().message()), ", \"min\" or \"max\""));
  if (*bytes <= 0)
    return absl::InvalidArgumentError(absl::StrCat("a limit of '", text, "' is not positive; use \"min\" or \"max\""));
  return bytes;
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.*f %s", std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0, value, kNames[unit]);
}

std::string FormatLimit(int64_t bytes) {
  if (bytes == 0) return "min";
  if (bytes < 0 || bytes == INT64_MAX) return "max";
  return FormatBytes(bytes);
}

std::string FormatSeconds(double seconds) {
  const double magnitude = std::abs(seconds);
  if (magnitude == 0) return "0 s";
  if (magnitude < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (magnitude < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g s", seconds);
}

}  // namespace tidetape
