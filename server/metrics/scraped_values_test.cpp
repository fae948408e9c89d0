#include "server/metrics/scraped_values.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "server/metrics/metrics_page.h"
#include "server/metrics/process_values.h"

namespace tidetape::server {
namespace {

double ValueOf(const ScrapedValues& values, const std::string& name) {
  for (const auto& family : values.Collect()) {
    if (family.name != name) continue;
    const auto& metric = family.metric.at(0);
    return family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(ScrapedValues, AreReadAtEveryScrape) {
  double length = 1;
  ScrapedValues values;
  values.AddGauge("queue_tasks", "Tasks.", [&length] { return length; }, {{"queue", "a"}});
  values.AddGauge("queue_tasks", "Tasks.", [&length] { return 10 * length; }, {{"queue", "b"}});
  values.AddCounter("refused_total", "Refused.", [] { return 7; });
  EXPECT_EQ(RenderMetrics({&values}),
            "# HELP queue_tasks Tasks.\n# TYPE queue_tasks gauge\nqueue_tasks{queue=\"a\"} 1\nqueue_tasks{queue=\"b\"} 10\n"
            "# HELP refused_total Refused.\n# TYPE refused_total counter\nrefused_total 7\n");
  length = 2;
  EXPECT_THAT(RenderMetrics({&values}), testing::HasSubstr("queue_tasks{queue=\"b\"} 20\n"));
}

TEST(ProcessValues, AreOfThisProcess) {
  ScrapedValues values;
  AddProcessValues(values);
  const double open = ValueOf(values, "process_open_fds");
  const int descriptor = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(ValueOf(values, "process_open_fds"), open + 1);
  close(descriptor);
  EXPECT_EQ(ValueOf(values, "process_max_fds"), static_cast<double>(sysconf(_SC_OPEN_MAX)));
  // This program is larger than 1 MB, and smaller than the machine.
  EXPECT_GT(ValueOf(values, "process_resident_memory_bytes"), 1e6);
  EXPECT_LT(ValueOf(values, "process_resident_memory_bytes"),
            static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  EXPECT_GT(ValueOf(values, "process_cpu_seconds_total"), 0);
}

}  // namespace
}  // namespace tidetape::server
