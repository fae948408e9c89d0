#include "server/metrics/scraped_values.h"

#include <utility>

namespace tidetape::server {

void ScrapedValues::Add(prometheus::MetricType type, const std::string& name, const std::string& help, std::function<double()> read,
                        const std::map<std::string, std::string>& labels) {
  if (families_.empty() || families_.back().name != name) families_.push_back({type, name, help, {}});
  Value value;
  for (const auto& [label, text] : labels) value.labels.push_back({label, text});
  value.read = std::move(read);
  families_.back().values.push_back(std::move(value));
}

std::vector<prometheus::MetricFamily> ScrapedValues::Collect() const {
  std::vector<prometheus::MetricFamily> collected;
  for (const Family& family : families_) {
    prometheus::MetricFamily out{family.name, family.help, family.type, {}};
    for (const Value& value : family.values) {
      prometheus::ClientMetric metric;
      metric.label = value.labels;
      (family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value.read();
      out.metric.push_back(std::move(metric));
    }
    collected.push_back(std::move(out));
  }
  return collected;
}

}  // namespace tidetape::server
