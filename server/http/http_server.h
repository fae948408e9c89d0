// The HTTP port: pages for machines and people, over TLS where the server has a certificate.
//
// It is apart from what agents need, so nothing about it stops the server: where its port is taken it says so, and tries again
// until it gets it.
#ifndef TIDETAPE_SERVER_HTTP_HTTP_SERVER_H_
#define TIDETAPE_SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/auth/server_tls.h"

namespace httplib {
class Server;
}

namespace tidetape::server {

struct HttpRequest {
  // The header of that name; unset where there is none.
  std::optional<std::string> authorization;
  // What follows a ? in the address, decoded; of equal names the first.
  std::map<std::string, std::string> query = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::map<std::string, std::string> headers = {};
};

// Thread-safe. Answers GET and HEAD, one request a connection, so that nobody holds a thread between requests.
class HttpServer {
 public:
  struct Options {
    // host:port; port 0 takes a free one.
    std::string listen;
    // Before every path, as in "/tidetape", for a proxy that shares its host among services; empty: none.
    std::string prefix;
    // As for the agents' port. All files are read again at every connection.
    ServerTls tls;
    // How often a port that is taken is tried again.
    absl::Duration retry = absl::Seconds(10);
    // Threads that answer, and connections that wait for them; more wait in the kernel.
    int threads = 8;
    size_t waiting = 32;
    // How long a client may take to send its request, or to take the answer.
    absl::Duration patience = absl::Seconds(3);
  };

  // Makes a page; called on many threads at once.
  using Page = std::function<HttpResponse(const HttpRequest&)>;

  // Listens, or begins to try. `pages` by path, as in "/metrics". InvalidArgument where `listen` or `prefix` cannot be what they
  // should.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Options& options, std::map<std::string, Page> pages);

  // Waits for the requests in hand.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Where it listens, with the port that was taken; empty while it does not.
  std::string address() const;

 private:
  HttpServer(const Options& options, std::map<std::string, Page> pages);
  std::shared_ptr<httplib::Server> MakeServer() const;
  HttpResponse Answer(const std::string& method, const std::string& path, const HttpRequest& request) const;
  // A server that is bound, or null.
  std::shared_ptr<httplib::Server> Bind();
  void Run(std::shared_ptr<httplib::Server> server);

  const Options options_;
  const std::map<std::string, Page> pages_;
  std::string host_;
  int port_ = 0;
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<httplib::Server> serving_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool complained_ = false;  // of the thread that binds
  std::thread thread_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_HTTP_SERVER_H_
