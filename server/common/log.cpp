#include "server/common/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace tidetape::server {

absl::Status SetUpLog(const std::string& level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  // from_str answers "off" for names that it does not know.
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown log level '", level, "'; use trace, debug, info, warning, error, critical or off"));
  }
  auto logger = std::make_shared<spdlog::logger>("tidetape", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %l %v", spdlog::pattern_time_type::utc);
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace tidetape::server
