// A real PostgreSQL server for tests: a cluster in a folder of its own, reached through a socket there, run by a user without
// rights.
#ifndef TIDETAPE_SERVER_STORE_TESTING_POSTGRES_SERVER_H_
#define TIDETAPE_SERVER_STORE_TESTING_POSTGRES_SERVER_H_

#include <sys/types.h>

#include <string>

namespace tidetape::server {

class PostgresServer {
 public:
  // Makes the cluster and starts the server; the test ends where that fails.
  PostgresServer();
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  void Start();
  // SIGINT ends connections and stops in good order, SIGQUIT at once, as in a crash.
  void Stop(int signal);

  // A connection string. Each `schema` is a place of its own, made where it is not there.
  std::string Connection(const std::string& schema) const;

  // The same without a schema, for the test's own questions.
  std::string AdminConnection() const;

 private:
  const std::string folder_;
  pid_t pid_ = 0;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_TESTING_POSTGRES_SERVER_H_
