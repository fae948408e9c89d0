#include "server/http/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/common/log.h"
#include "server/http/connection_queue.h"
#include "server/http/http_tls.h"

namespace tidetape::server {
namespace {

// The library's default lets two servers share a port, which would hide that it is taken.
void AllowQuickRestart(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

// "[::1]:80" is the host "::1".
bool SplitAddress(const std::string& address, std::string& host, int& port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return !host.empty() && absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 && port < (1 << 16);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options, std::map<std::string, Page> pages) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(pages)));
  if (!SplitAddress(options.listen, server->host_, server->port_)) {
    return absl::InvalidArgumentError(absl::StrCat("--http_listen=", options.listen, ": use host:port, as in 127.0.0.1:50552"));
  }
  if (!options.prefix.empty() && (options.prefix.front() != '/' || options.prefix.back() == '/')) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http_prefix=", options.prefix, ": begin with a slash and end without one, as in /tidetape"));
  }
  server->thread_ = std::thread([server = server.get(), bound = server->Bind()] { server->Run(bound); });
  return server;
}

HttpServer::HttpServer(const Options& options, std::map<std::string, Page> pages) : options_(options), pages_(std::move(pages)) {}

HttpServer::~HttpServer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (!thread_.joinable()) return;
  while (true) {
    std::shared_ptr<httplib::Server> server;
    {
      absl::MutexLock lock(&mutex_);
      server = serving_;
    }
    if (server == nullptr) break;
    // It may be about to begin, and only hears of a stop after that.
    if (server->is_running()) server->stop();
    absl::SleepFor(absl::Milliseconds(1));
  }
  thread_.join();
}

std::string HttpServer::address() const {
  absl::MutexLock lock(&mutex_);
  return address_;
}

std::shared_ptr<httplib::Server> HttpServer::MakeServer() const {
  std::shared_ptr<httplib::Server> server;
  if (options_.tls.certificate_file.empty()) {
    server = std::make_shared<httplib::Server>();
  } else {
    server = std::make_shared<httplib::SSLServer>([this](SSL_CTX& context) {
      SetUpTls(context, options_.tls);
      return true;
    });
  }
  server->set_socket_options(AllowQuickRestart);
  server->new_task_queue = [this] { return new ConnectionQueue(options_.threads, options_.waiting); };
  server->set_keep_alive_max_count(1);
  server->set_keep_alive_timeout(absl::ToInt64Seconds(options_.patience));
  server->set_read_timeout(absl::ToChronoSeconds(options_.patience));
  server->set_write_timeout(absl::ToChronoSeconds(options_.patience));
  // Before the library reads a body, which no page takes.
  server->set_pre_routing_handler([this](const httplib::Request& from, httplib::Response& to) {
    HttpRequest request;
    if (from.has_header("Authorization")) request.authorization = from.get_header_value("Authorization");
    for (const auto& [name, value] : from.params) request.query.emplace(name, value);
    const HttpResponse response = Answer(from.method, from.path, request);
    to.status = response.status;
    for (const auto& [name, value] : response.headers) to.set_header(name.c_str(), value);
    to.set_header("Cache-Control", "no-store");
    to.set_content(response.body, response.content_type.c_str());
    return httplib::Server::HandlerResponse::Handled;
  });
  return server;
}

HttpResponse HttpServer::Answer(const std::string& method, const std::string& path, const HttpRequest& request) const {
  // Links of a page are relative to the folder that it is in.
  if (!options_.prefix.empty() && path == options_.prefix) return {.status = 301, .headers = {{"Location", options_.prefix + "/"}}};
  const auto page = absl::StartsWith(path, options_.prefix) ? pages_.find(path.substr(options_.prefix.size())) : pages_.end();
  if (page == pages_.end()) {
    std::string body = "There is no such page. There are:";
    for (const auto& [name, unused] : pages_) absl::StrAppend(&body, "\n", options_.prefix, name);
    return {.status = 404, .body = body + "\n"};
  }
  if (method != "GET" && method != "HEAD") return {.status = 405, .body = "Use GET.\n", .headers = {{"Allow", "GET, HEAD"}}};
  return page->second(request);
}

std::shared_ptr<httplib::Server> HttpServer::Bind() {
  std::shared_ptr<httplib::Server> server = MakeServer();
  int port = port_;
  const bool bound = port_ == 0 ? (port = server->bind_to_any_port(host_)) > 0 : server->bind_to_port(host_, port_);
  if (!bound) {
    if (!std::exchange(complained_, true)) {
      spdlog::warn("http: cannot listen on {}; is the port taken, or the address not of this machine? Trying again every {}",
                   options_.listen, absl::FormatDuration(options_.retry));
    }
    return nullptr;
  }
  complained_ = false;
  absl::MutexLock lock(&mutex_);
  address_ = absl::StrCat(options_.listen.substr(0, options_.listen.rfind(':')), ":", port);
  serving_ = server;
  spdlog::info("http: listening on {}://{}{}", options_.tls.certificate_file.empty() ? "http" : "https", address_, options_.prefix);
  return server;
}

void HttpServer::Run(std::shared_ptr<httplib::Server> server) {
  while (true) {
    if (server != nullptr) {
      server->listen_after_bind();
      absl::MutexLock lock(&mutex_);
      address_.clear();
      serving_ = nullptr;
      if (!stopping_) spdlog::warn("http: the port was lost");
    }
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), options_.retry)) return;
    }
    server = Bind();
  }
}

}  // namespace tidetape::server
