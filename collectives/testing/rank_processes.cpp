#include "collectives/testing/rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tidetape::collectives {
namespace {

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::string said;
};

[[noreturn]] void RunChild(int rank, int pipe, const std::function<absl::Status(int)>& body) {
  // No rank outlives a test that is killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const absl::Status status = body(rank);
  const std::string text = absl::StrCat(static_cast<int>(status.code()), " ", status.message());
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = write(pipe, text.data() + sent, text.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  _exit(0);
}

// Reads what the child says until it ends or the deadline passes; true where it ended.
bool ReadToEnd(Child& child, absl::Time deadline) {
  while (true) {
    pollfd waiting = {child.pipe, POLLIN, 0};
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now()));
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return false;
    char buffer[4096];
    const ssize_t n = read(child.pipe, buffer, sizeof(buffer));
    if (n <= 0) return true;
    child.said.append(buffer, static_cast<size_t>(n));
  }
}

RankOutcome Collect(Child& child, absl::Time deadline) {
  RankOutcome outcome;
  outcome.overdue = !ReadToEnd(child, deadline);
  if (outcome.overdue) kill(child.pid, SIGKILL);
  int how = 0;
  waitpid(child.pid, &how, 0);
  close(child.pipe);
  if (WIFSIGNALED(how)) outcome.killed_by = WTERMSIG(how);
  const size_t space = child.said.find(' ');
  // A sanitizer's findings show in the exit code alone.
  if (space == std::string::npos || (WIFEXITED(how) && WEXITSTATUS(how) != 0)) {
    outcome.status = absl::UnknownError(WIFEXITED(how) ? absl::StrCat("exit code ", WEXITSTATUS(how)) : "ended without a word");
  } else {
    outcome.status = absl::Status(static_cast<absl::StatusCode>(std::atoi(child.said.c_str())), child.said.substr(space + 1));
  }
  return outcome;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RankOutcome& outcome) {
  out << outcome.status.ToString();
  if (outcome.killed_by != 0) out << " (killed by signal " << outcome.killed_by << ")";
  if (outcome.overdue) out << " (overdue)";
  return out;
}

std::vector<RankOutcome> RunRanks(int ranks, absl::Duration limit, const std::function<absl::Status(int rank)>& body) {
  std::fflush(nullptr);
  const absl::Time deadline = absl::Now() + limit;
  std::vector<Child> children(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    Child& child = children[static_cast<size_t>(rank)];
    child.pid = fork();
    if (child.pid < 0) std::abort();
    if (child.pid == 0) {
      close(ends[0]);
      for (const Child& other : children) {
        if (other.pipe >= 0) close(other.pipe);
      }
      RunChild(rank, ends[1], body);
    }
    close(ends[1]);
    child.pipe = ends[0];
  }
  std::vector<RankOutcome> outcomes;
  outcomes.reserve(children.size());
  for (Child& child : children) outcomes.push_back(Collect(child, deadline));
  return outcomes;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tidetape.XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

void TemporaryFolder::Clear() {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove_all(entry.path());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tidetape::collectives
