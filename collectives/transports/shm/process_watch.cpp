#include "collectives/transports/shm/process_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

absl::StatusOr<std::unique_ptr<ProcessWatch>> ProcessWatch::Start(std::vector<Process> processes,
                                                                  std::shared_ptr<GroupHealth> health) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return absl::ResourceExhaustedError(absl::StrCat("cannot make an eventfd: ", std::strerror(errno)));
  return std::unique_ptr<ProcessWatch>(new ProcessWatch(std::move(processes), std::move(health), std::move(stop)));
}

ProcessWatch::ProcessWatch(std::vector<Process> processes, std::shared_ptr<GroupHealth> health, UniqueFd stop)
    : processes_(std::move(processes)), health_(std::move(health)), stop_(std::move(stop)), thread_([this] { Run(); }) {}

ProcessWatch::~ProcessWatch() {
  if (!owner_.IsHere()) {
    OwnerProcess::Abandon(std::move(thread_));
    return;
  }
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ProcessWatch::SayGoodbye(int lost_rank) {
  if (!owner_.IsHere()) return;
  const int32_t word = lost_rank;
  for (const Process& process : processes_) send(process.connection.get(), &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool ProcessWatch::Look(const Process& process, bool ended) {
  int32_t lost_rank = -1;
  const ssize_t bytes = recv(process.connection.get(), &lost_rank, sizeof(lost_rank), MSG_DONTWAIT);
  if (bytes == sizeof(lost_rank)) {
    health_->ReportLeft(process.rank, lost_rank);
    return true;
  }
  if (!ended && bytes != 0) return false;
  health_->ReportLost(process.rank, ended ? "died (its process has ended)" : "died (it hung up without a goodbye)");
  return true;
}

void ProcessWatch::Run() {
  // Two entries a process; poll ignores the negative ones.
  std::vector<pollfd> waiting = {{stop_.get(), POLLIN, 0}};
  for (const Process& process : processes_) {
    waiting.push_back({process.pidfd.get(), POLLIN, 0});
    waiting.push_back({process.connection.get(), POLLIN, 0});
  }
  while (true) {
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
    if (waiting[0].revents != 0) return;
    for (size_t i = 0; i < processes_.size(); ++i) {
      pollfd& pidfd = waiting[1 + 2 * i];
      pollfd& connection = waiting[2 + 2 * i];
      if (pidfd.revents == 0 && connection.revents == 0) continue;
      if (Look(processes_[i], pidfd.revents != 0)) pidfd.fd = connection.fd = -1;
      pidfd.revents = connection.revents = 0;
    }
  }
}

}  // namespace tidetape::collectives
