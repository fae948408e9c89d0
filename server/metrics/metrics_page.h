// The text that Prometheus reads.
#ifndef TIDETAPE_SERVER_METRICS_METRICS_PAGE_H_
#define TIDETAPE_SERVER_METRICS_METRICS_PAGE_H_

#include <prometheus/collectable.h>

#include <string>
#include <vector>

namespace tidetape::server {

// Content type of the text exposition format.
inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// All that the sources collect now, in the text exposition format. No two of them share a name.
std::string RenderMetrics(const std::vector<const prometheus::Collectable*>& sources);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_METRICS_METRICS_PAGE_H_
