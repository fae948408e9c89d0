#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "server/testing/test_certificates.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

std::map<std::string, HttpServer::Page> EchoPage() {
  return {{"/page", [](const HttpRequest& request) {
             return HttpResponse{.body = request.authorization.value_or("nobody"), .headers = {{"X-Test", "yes"}}};
           }}};
}

std::unique_ptr<HttpServer> Start(HttpServer::Options options) {
  if (options.listen.empty()) options.listen = "127.0.0.1:0";
  options.retry = absl::Milliseconds(20);
  auto server = HttpServer::Start(options, EchoPage());
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

int PortOf(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

// A port of loopback that somebody else has.
class TakenPort {
 public:
  TakenPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { Free(); }

  void Free() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

TEST(HttpServer, AnswersGetAndHeadAndNothingElse) {
  const auto server = Start({});
  httplib::Client client("127.0.0.1", PortOf(server->address()));
  const auto got = client.Get("/page", {{"Authorization", "Bearer me"}});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->body, "Bearer me");
  EXPECT_EQ(got->get_header_value("X-Test"), "yes");
  EXPECT_EQ(got->get_header_value("Cache-Control"), "no-store");
  const auto head = client.Head("/page");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200);
  const auto posted = client.Post("/page", std::string(1 << 20, 'x'), "text/plain");
  if (posted) {
    EXPECT_EQ(posted->status, 405);  // or the connection ends under the body that nobody reads
  }
  const auto missing = client.Get("/elsewhere");
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->status, 404);
  EXPECT_THAT(missing->body, HasSubstr("/page\n"));
}

TEST(HttpServer, APrefixGoesBeforeEveryPath) {
  const auto server = Start({.prefix = "/tidetape"});
  httplib::Client client("127.0.0.1", PortOf(server->address()));
  EXPECT_EQ(client.Get("/tidetape/page")->status, 200);
  EXPECT_EQ(client.Get("/page")->status, 404);
  EXPECT_EQ(client.Get("/tidetapes/page")->status, 404);
}

TEST(HttpServer, ATakenPortIsTriedAgainUntilItIsFree) {
  TakenPort taken;
  const auto server = Start({.listen = "127.0.0.1:" + std::to_string(taken.port())});
  absl::SleepFor(absl::Milliseconds(60));
  EXPECT_EQ(server->address(), "");
  taken.Free();
  for (int i = 0; i < 1000 && server->address().empty(); ++i) absl::SleepFor(absl::Milliseconds(10));
  httplib::Client client("127.0.0.1", taken.port());
  const auto got = client.Get("/page");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->body, "nobody");
}

TEST(HttpServer, TwoServersDoNotShareAPort) {
  const auto first = Start({});
  const auto second = Start({.listen = first->address()});
  EXPECT_EQ(second->address(), "");
}

TEST(HttpServer, StopsWhileItWaitsForAPort) {
  TakenPort taken;
  for (int i = 0; i < 5; ++i) Start({.listen = "127.0.0.1:" + std::to_string(taken.port())});
}

TEST(HttpServer, StopsRightAfterItStarted) {
  for (int i = 0; i < 50; ++i) Start({});
}

TEST(HttpServer, WrongAddressesAndPrefixesAreRefused) {
  for (const char* listen : {"", "localhost", ":80", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:http"}) {
    EXPECT_EQ(HttpServer::Start({.listen = listen}, {}).status().code(), absl::StatusCode::kInvalidArgument) << listen;
  }
  for (const char* prefix : {"tidetape", "/tidetape/", "/"}) {
    const auto status = HttpServer::Start({.listen = "127.0.0.1:0", .prefix = prefix}, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << prefix;
  }
}

TEST(HttpServer, ClientsThatSendNothingDoNotStopTheOthersForLong) {
  const auto server = Start({.threads = 2, .waiting = 2, .patience = absl::Seconds(1)});
  std::vector<int> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(PortOf(server->address()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(silent.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  httplib::Client client("127.0.0.1", PortOf(server->address()));
  client.set_read_timeout(60);
  const auto got = client.Get("/page");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  for (const int descriptor : silent) close(descriptor);
}

TEST(HttpServer, ServesTlsAndARenewedCertificateCountsAtOnce) {
  TestCertificates certificates("http-tls");
  certificates.Make("server");
  certificates.Make("expired", /*expired=*/true);
  const auto server =
      Start({.tls = {.certificate_file = certificates.File("server.pem"), .key_file = certificates.File("server.key")}});
  const auto get = [&] {
    httplib::SSLClient client("127.0.0.1", PortOf(server->address()));
    client.set_ca_cert_path(certificates.File("ca.pem").c_str());
    client.enable_server_certificate_verification(true);
    return client.Get("/page");
  };
  ASSERT_TRUE(get());
  EXPECT_EQ(get()->status, 200);
  const auto use = [&](const std::string& name) {
    for (const char* ending : {".pem", ".key"}) {
      std::filesystem::copy_file(certificates.File(name + ending), certificates.File(std::string("server") + ending),
                                 std::filesystem::copy_options::overwrite_existing);
    }
  };
  for (const char* ending : {".pem", ".key"}) {
    std::filesystem::copy_file(certificates.File(std::string("server") + ending), certificates.File(std::string("good") + ending));
  }
  use("expired");
  EXPECT_FALSE(get());
  use("good");
  EXPECT_TRUE(get());
  // Plaintext is not served there.
  httplib::Client plain("127.0.0.1", PortOf(server->address()));
  EXPECT_FALSE(plain.Get("/page"));
}

TEST(HttpServer, WithAClientsAuthorityACertificateIsNeeded) {
  TestCertificates certificates("http-mutual-tls");
  certificates.Make("server");
  certificates.Make("client");
  certificates.Make("expired", /*expired=*/true);
  TestCertificates others("http-other-authority");
  others.Make("stranger");
  const auto server = Start({.tls = {.certificate_file = certificates.File("server.pem"),
                                     .key_file = certificates.File("server.key"),
                                     .client_ca_file = certificates.File("ca.pem")}});
  const auto get = [&](const std::string& certificate, const std::string& key) {
    httplib::SSLClient client("127.0.0.1", PortOf(server->address()), certificate, key);
    client.set_ca_cert_path(certificates.File("ca.pem").c_str());
    const auto got = client.Get("/page");
    return got && got->status == 200;
  };
  EXPECT_TRUE(get(certificates.File("client.pem"), certificates.File("client.key")));
  EXPECT_FALSE(get("", ""));
  EXPECT_FALSE(get(certificates.File("expired.pem"), certificates.File("expired.key")));
  EXPECT_FALSE(get(others.File("stranger.pem"), others.File("stranger.key")));
}

}  // namespace
}  // namespace tidetape::server
