#include "collectives/testing/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/transports/common/unique_fd.h"

namespace tidetape::collectives {
namespace {

// A process in a network namespace of its own, or -1.
pid_t StartHolder() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const pid_t holder = fork();
  if (holder == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char made = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
    if (write(ends[1], &made, 1) != 1) _exit(1);
    while (true) pause();
  }
  char made = 'n';
  const bool said = read(ends[0], &made, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  if (said && made == 'y') return holder;
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TwoHosts>> TwoHosts::Make() {
  std::unique_ptr<TwoHosts> hosts(new TwoHosts());
  for (pid_t& holder : hosts->holders_) {
    holder = StartHolder();
    if (holder < 0) return absl::PermissionDeniedError("this test needs root, to make network namespaces");
  }
  const std::string link = absl::StrCat("ip link add veth0 type veth peer name veth1 netns ", hosts->holders_[1]);
  if (absl::Status status = hosts->Run(0, link); !status.ok()) return status;
  for (int host : {0, 1}) {
    const std::string up =
        absl::StrCat("ip link set lo up && ip addr add ", Address(host), "/24 dev veth", host, " && ip link set veth", host, " up");
    if (absl::Status status = hosts->Run(host, up); !status.ok()) return status;
  }
  return hosts;
}

TwoHosts::~TwoHosts() {
  for (pid_t holder : holders_) {
    if (holder < 0) continue;
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
  }
}

std::string TwoHosts::Address(int host) { return absl::StrCat("10.113.0.", host + 1); }

absl::Status TwoHosts::Enter(int host) const {
  const std::string path = absl::StrCat("/proc/", holders_[static_cast<size_t>(host)], "/ns/net");
  const UniqueFd space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (space && setns(space.get(), CLONE_NEWNET) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot enter a network namespace: ", std::strerror(errno)));
}

absl::Status TwoHosts::Run(int host, const std::string& command) const {
  const pid_t child = fork();
  if (child == 0) {
    if (!Enter(host).ok()) _exit(1);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(1);
  }
  int how = 0;
  waitpid(child, &how, 0);
  if (how == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("\"", command, "\" failed; this test needs root and iproute2"));
}

absl::Status TwoHosts::Cut() const { return Run(0, "ip link set veth0 down"); }

absl::Status TwoHosts::Mend() const { return Run(0, "ip link set veth0 up"); }

}  // namespace tidetape::collectives
