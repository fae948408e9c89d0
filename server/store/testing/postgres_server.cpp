#include "server/store/testing/postgres_server.h"

#include <postgresql/libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tidetape::server {
namespace {

constexpr char kPrograms[] = "/usr/lib/postgresql/15/bin/";

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "the test's PostgreSQL: %s\n", message.c_str());
  std::abort();
}

// PostgreSQL refuses to run as root; its own user has no rights beyond its files.
const passwd* User() {
  if (geteuid() != 0) return nullptr;
  const passwd* user = getpwnam("postgres");
  if (user == nullptr) user = getpwnam("nobody");
  return user;
}

std::string MakeFolder() {
  // Not in the test's own folder: that may be closed to other users, and is too long for a socket's name.
  std::string folder = "/tmp/tidetape-postgres-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) Fail("no folder in /tmp");
  if (const passwd* user = User(); user != nullptr && chown(folder.c_str(), user->pw_uid, user->pw_gid) != 0) Fail("chown failed");
  return folder;
}

pid_t Run(const std::string& program, std::vector<std::string> arguments, const std::string& folder) {
  const std::string path = absl::StrCat(kPrograms, program);
  if (access(path.c_str(), X_OK) != 0) Fail(path + " is not there; run make setup");
  const passwd* user = User();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  if (user != nullptr && (setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) _exit(126);
  // After the change of user, which clears it.
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  if (chdir(folder.c_str()) != 0) _exit(126);
  if (std::freopen((folder + "/log").c_str(), "a", stdout) == nullptr || dup2(1, 2) < 0) _exit(126);
  arguments.insert(arguments.begin(), path);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(path.c_str(), argv.data());
  _exit(127);
}

int Wait(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

}  // namespace

PostgresServer::PostgresServer() : folder_(MakeFolder()) {
  const pid_t pid =
      Run("initdb", {"-D", folder_ + "/data", "-A", "trust", "-U", "tidetape", "-E", "UTF8", "--locale=C", "--no-sync"}, folder_);
  if (Wait(pid) != 0) Fail("initdb failed; see " + folder_ + "/log");
  Start();
}

PostgresServer::~PostgresServer() {
  Stop(SIGQUIT);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void PostgresServer::Start() {
  // A machine does not crash in these tests, so nothing has to be on its disk.
  pid_ = Run("postgres",
             {"-D", folder_ + "/data", "-k", folder_, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"},
             folder_);
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (PQping(AdminConnection().c_str()) != PQPING_OK) {
    if (absl::Now() > deadline) Fail("it does not start; see " + folder_ + "/log");
    absl::SleepFor(absl::Milliseconds(20));
  }
}

void PostgresServer::Stop(int signal) {
  if (pid_ == 0) return;
  kill(pid_, signal);
  Wait(pid_);
  pid_ = 0;
}

std::string PostgresServer::AdminConnection() const { return absl::StrCat("host=", folder_, " user=tidetape dbname=postgres"); }

std::string PostgresServer::Connection(const std::string& schema) const {
  PGconn* admin = PQconnectdb(AdminConnection().c_str());
  PQclear(PQexec(admin, "SET client_min_messages = warning"));
  PGresult* made = PQexec(admin, absl::StrCat("CREATE SCHEMA IF NOT EXISTS ", schema).c_str());
  const std::string complaint = PQresultStatus(made) == PGRES_COMMAND_OK ? "" : PQerrorMessage(admin);
  PQclear(made);
  PQfinish(admin);
  if (!complaint.empty()) Fail(complaint);
  return absl::StrCat(AdminConnection(), " options='-c search_path=", schema, "'");
}

}  // namespace tidetape::server
