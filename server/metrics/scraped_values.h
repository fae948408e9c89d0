// Metrics that are read when somebody asks for them.
#ifndef TIDETAPE_SERVER_METRICS_SCRAPED_VALUES_H_
#define TIDETAPE_SERVER_METRICS_SCRAPED_VALUES_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tidetape::server {

// Fill it first, from one thread; Collect() is thread-safe from then on.
class ScrapedValues final : public prometheus::Collectable {
 public:
  // `read` is called at every scrape, on any thread, and must not block for long. Several of one name differ in their labels and
  // follow each other.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> read,
                const std::map<std::string, std::string>& labels = {}) {
    Add(prometheus::MetricType::Gauge, name, help, std::move(read), labels);
  }
  // What `read` returns never falls.
  void AddCounter(const std::string& name, const std::string& help, std::function<double()> read,
                  const std::map<std::string, std::string>& labels = {}) {
    Add(prometheus::MetricType::Counter, name, help, std::move(read), labels);
  }

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Value {
    std::vector<prometheus::ClientMetric::Label> labels;
    std::function<double()> read;
  };
  struct Family {
    prometheus::MetricType type;
    std::string name;
    std::string help;
    std::vector<Value> values;
  };

  void Add(prometheus::MetricType type, const std::string& name, const std::string& help, std::function<double()> read,
           const std::map<std::string, std::string>& labels);

  std::vector<Family> families_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_METRICS_SCRAPED_VALUES_H_
