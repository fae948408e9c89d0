#include "server/metrics/process_values.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

namespace tidetape::server {
namespace {

double Seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6; }

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// proc(5): the second number of statm is the resident set, in pages.
double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total = 0;
  double resident = 0;
  statm >> total >> resident;
  return statm ? resident * static_cast<double>(sysconf(_SC_PAGESIZE)) : std::nan("");
}

double OpenDescriptors() {
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc/self/fd", error);
  if (error) return std::nan("");
  double open = -1;  // the look itself takes one
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) ++open;
  return open;
}

double MostDescriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity() : static_cast<double>(limit.rlim_cur);
}

}  // namespace

void AddProcessValues(ScrapedValues& values) {
  values.AddCounter("process_cpu_seconds_total", "User and system time of the server.", CpuSeconds);
  values.AddGauge("process_resident_memory_bytes", "Memory of the server that is in RAM.", ResidentBytes);
  values.AddGauge("process_open_fds", "Open file descriptors.", OpenDescriptors);
  values.AddGauge("process_max_fds", "Most file descriptors that may be open.", MostDescriptors);
}

}  // namespace tidetape::server
