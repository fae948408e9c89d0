// What jobs report, as metrics.
//
// Nothing is kept between scrapes: each one asks for the jobs there are, so a job's series end with the job, and none can be
// touched after that. A job that has ended keeps its state and its info until it is forgotten; its measurements go at once.
#ifndef TIDETAPE_SERVER_METRICS_JOB_METRICS_H_
#define TIDETAPE_SERVER_METRICS_JOB_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "server/job/job_snapshot.h"

namespace tidetape::server {

// Thread-safe where `jobs` is.
class JobMetrics final : public prometheus::Collectable {
 public:
  // Bounds on the number of series.
  struct Options {
    // Jobs with series: those that run first, then those that were heard of last.
    size_t jobs = 256;
    // Ranks of one job with series of their own, lowest first. What is told of the job covers all ranks.
    size_t ranks = 64;
  };

  JobMetrics(const Options& options, std::function<std::vector<JobSnapshot>()> jobs);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Options options_;
  const std::function<std::vector<JobSnapshot>()> jobs_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_METRICS_JOB_METRICS_H_
