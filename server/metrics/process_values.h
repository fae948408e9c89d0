// The process itself, under the names that Prometheus' own libraries use.
#ifndef TIDETAPE_SERVER_METRICS_PROCESS_VALUES_H_
#define TIDETAPE_SERVER_METRICS_PROCESS_VALUES_H_

#include "server/metrics/scraped_values.h"

namespace tidetape::server {

// Adds process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds and process_max_fds.
void AddProcessValues(ScrapedValues& values);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_METRICS_PROCESS_VALUES_H_
