// For tests: tidetape-server as a process, which can be killed and started again. It has no HTTP port unless the flags give it one.
#ifndef TIDETAPE_SERVER_TESTING_SERVER_PROCESS_H_
#define TIDETAPE_SERVER_TESTING_SERVER_PROCESS_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tidetape::server {

class ServerProcess {
 public:
  // `flags` beside those that name addresses and the log's level.
  explicit ServerProcess(std::vector<std::string> flags, std::string program = "server/tidetape-server")
      : program_(std::move(program)), flags_(std::move(flags)) {}
  ~ServerProcess() { Stop(SIGKILL); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Starts on the port that it had before, or a free one, and waits until it listens. False where it ended instead.
  bool Start() {
    static int files = 0;
    const std::string file =
        testing::TempDir() + "/server." + std::to_string(getpid()) + "." + std::to_string(++files) + ".address";
    std::vector<std::string> arguments = {program_, "--listen=" + (address_.empty() ? "127.0.0.1:0" : address_),
                                          "--address_file=" + file, "--log_level=error", "--http_listen="};
    arguments.insert(arguments.end(), flags_.begin(), flags_.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::fflush(nullptr);  // or the child would print it again
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execv(program_.c_str(), argv.data());
      _exit(127);
    }
    for (int i = 0; i < 30'000; ++i) {
      std::ifstream stream(file);
      if (std::getline(stream, address_) && !address_.empty()) {
        if (!std::getline(stream, http_address_)) http_address_.clear();
        std::remove(file.c_str());
        return true;
      }
      if (waitpid(pid_, &status_, WNOHANG) == pid_) {
        pid_ = 0;
        return false;
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
    ADD_FAILURE() << program_ << " does not listen";
    return false;
  }

  // Returns the exit code, or -signal; of the last process where none runs.
  int Stop(int signal) {
    if (pid_ > 0) {
      kill(pid_, signal);
      waitpid(pid_, &status_, 0);
      pid_ = 0;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

  const std::string& address() const { return address_; }
  // Of the HTTP port; empty where it has none.
  const std::string& http_address() const { return http_address_; }
  pid_t pid() const { return pid_; }

 private:
  const std::string program_;
  const std::vector<std::string> flags_;
  std::string address_;
  std::string http_address_;
  pid_t pid_ = 0;
  int status_ = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_SERVER_PROCESS_H_
