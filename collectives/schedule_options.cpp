#include "collectives/schedule_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

absl::Status ValidateScheduleOptions(const ScheduleOptions& options) {
  const auto invalid = [](const char* field, auto value, const char* rule) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be ", rule));
  };
  if (options.chunk_bytes < 16) return invalid("chunk_bytes", options.chunk_bytes, "at least 16");
  if (options.puts_in_flight < 1 || options.puts_in_flight > 256) {
    return invalid("puts_in_flight", options.puts_in_flight, "from 1 to 256");
  }
  if (options.gap < absl::ZeroDuration() || options.gap == absl::InfiniteDuration()) {
    return invalid("gap", absl::FormatDuration(options.gap), "finite and not negative");
  }
  if (options.multicast_most_bytes < 0) return invalid("multicast_most_bytes", options.multicast_most_bytes, "at least 0");
  if (!std::isfinite(options.divide_factor) || options.divide_factor <= 0) {
    return invalid("divide_factor", options.divide_factor, "finite and positive");
  }
  if (options.staging_slots < 0 || options.staging_slots > 256)
    return invalid("staging_slots", options.staging_slots, "from 0 to 256");
  if (options.gradient_dtype.has_value() && *options.gradient_dtype != DType::kBFloat16 &&
      *options.gradient_dtype != DType::kFloat32) {
    return invalid("gradient_dtype", DTypeName(*options.gradient_dtype), "bfloat16 or float32");
  }
  return absl::OkStatus();
}

}  // namespace tidetape::collectives
