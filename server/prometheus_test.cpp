// A real Prometheus scrapes the real server while agents report.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/testing/example_job.h"
#include "server/testing/fake_agent.h"
#include "server/testing/server_process.h"
#include "server/testing/test_certificates.h"

namespace tidetape::server {
namespace {

// Far beyond what any step here needs on a slow machine.
constexpr absl::Duration kPatience = absl::Seconds(60);

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n'); }

// The names in the table of docs/operations.md: lines that begin with "| `tidetape_" or "| `process_".
std::vector<std::string> DocumentedMetrics() {
  std::vector<std::string> names;
  for (const std::string& line : Lines(ReadFile("docs/operations.md"))) {
    if (!absl::StartsWith(line, "| `tidetape_") && !absl::StartsWith(line, "| `process_")) continue;
    const size_t begin = line.find('`') + 1;
    names.push_back(line.substr(begin, line.find_first_of("`{", begin) - begin));
  }
  return names;
}

bool Eventually(const std::function<bool()>& holds) {
  for (const absl::Time deadline = absl::Now() + kPatience; absl::Now() < deadline; absl::SleepFor(absl::Milliseconds(100))) {
    if (holds()) return true;
  }
  return holds();
}

class Prometheus {
 public:
  // Scrapes with the project's own configuration and rules, but every second, over TLS and with a token.
  Prometheus(const std::string& folder, const std::string& target, const TestCertificates& files, const std::string& token)
      : folder_(folder) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/prometheus.yml")
        << "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        << "rule_files: [" << std::filesystem::current_path().string() << "/deploy/prometheus/tidetape.rules.yml]\n"
        << "scrape_configs:\n- job_name: tidetape\n  honor_labels: true\n"
        << "  scheme: https\n  tls_config: {ca_file: " << files.File("ca.pem") << "}\n"
        << "  authorization: {credentials_file: " << files.File(token + ".token") << "}\n"
        << "  metrics_path: /tidetape/metrics\n"
        << "  static_configs: [{targets: [\"" << target << "\"]}]\n";
    port_ = FreePort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string config = "--config.file=" + folder + "/prometheus.yml", data = "--storage.tsdb.path=" + folder + "/data",
                        listen = "--web.listen-address=127.0.0.1:" + std::to_string(port_);
      if (std::freopen((folder + "/log").c_str(), "w", stderr) == nullptr) _exit(126);
      execlp("prometheus", "prometheus", config.c_str(), data.c_str(), listen.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
  }
  ~Prometheus() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // Whether the query has an answer now; an error is one of the test.
  bool Has(const std::string& query) const {
    httplib::Client client("127.0.0.1", port_);
    const auto got = client.Get("/api/v1/query", httplib::Params{{"query", query}}, httplib::Headers{});
    if (!got) return false;  // it is not up yet
    if (got->status == 503) return false;
    EXPECT_EQ(got->status, 200) << query << ": " << got->body;
    return !absl::StrContains(got->body, "\"result\":[]");
  }

  std::string log() const { return ReadFile(folder_ + "/log"); }

 private:
  static int FreePort() {
    const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length), 0);
    close(descriptor);
    return ntohs(address.sin_port);
  }

  const std::string folder_;
  int port_ = 0;
  pid_t pid_ = 0;
};

// The example job leaves FSDP's collectives alone; job_metrics_test has a job that does not.
bool IsOfCollectives(const std::string& metric) {
  for (const char* part : {"_pacing_", "_gather_", "_reduce_", "_covered_", "_network_"}) {
    if (absl::StrContains(metric, part)) return true;
  }
  return false;
}

class PrometheusTest : public testing::Test {
 protected:
  PrometheusTest() : files_("prometheus-files"), folder_(testing::TempDir() + "/prometheus") {
    std::filesystem::remove_all(folder_);
    files_.Make("server");
    std::ofstream(files_.File("tokens")) << files_.MakeToken("scraper", "reader") << files_.MakeToken("trainer", "agent", "*");
  }

  std::vector<std::string> Flags() const {
    return {"--store=sqlite:" + folder_ + "/server.db",
            "--tls_cert=" + files_.File("server.pem"),
            "--tls_key=" + files_.File("server.key"),
            "--token_file=" + files_.File("tokens"),
            "--http_listen=127.0.0.1:0",
            "--http_prefix=/tidetape",
            "--end_after_silence=1s",
            "--retention=1s"};
  }

  net::ClientCredentials Credentials(const std::string& address) const {
    auto credentials = net::ClientCredentials::Load(files_.Security("", "trainer"), address);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return *std::move(credentials);
  }

  // One page of metrics.
  std::string Metrics(const std::string& http_address) const {
    httplib::SSLClient client("127.0.0.1", std::stoi(http_address.substr(http_address.rfind(':') + 1)));
    client.set_ca_cert_path(files_.File("ca.pem").c_str());
    const auto got = client.Get("/tidetape/metrics", {{"Authorization", "Bearer token-of-scraper"}});
    EXPECT_TRUE(got && got->status == 200);
    return got ? got->body : "";
  }

  TestCertificates files_;
  const std::string folder_;
};

TEST_F(PrometheusTest, EveryDocumentedMetricHasASampleAndAForgottenJobHasNone) {
  ServerProcess server(Flags());
  ASSERT_TRUE(server.Start());
  ASSERT_NE(server.http_address(), "");
  const Prometheus prometheus(folder_, server.http_address(), files_, "scraper");
  {
    const net::ClientCredentials credentials = Credentials(server.address());
    v1::Hello hello = ExampleHello();
    hello.set_pod_namespace("research");
    hello.set_pod("train-0");
    hello.set_slurm_job_id("77");
    FakeAgent agent(server.address(), hello, FakeAgent::Reading::kAtOnce, credentials);
    agent.SendTape(ExampleTape());
    ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(1))));
    const int64_t generation = agent.WaitForPlan(1).generation();
    ASSERT_GT(generation, 0);
    agent.SendActivated(generation, 2);
    v1::StepReport report = ExampleReport(2);
    report.set_generation(generation);
    report.set_step_peak_bytes(1290);
    report.set_saved_bytes(390);
    ASSERT_TRUE(agent.WaitForAck(agent.SendReport(report)));

    const std::vector<std::string> documented = DocumentedMetrics();
    ASSERT_GT(documented.size(), 40u);
    ASSERT_TRUE(Eventually([&] { return prometheus.Has("tidetape_job_peak_residual_ratio"); })) << prometheus.log();
    for (const std::string& name : documented) {
      if (IsOfCollectives(name)) continue;
      // A histogram's own name has no samples.
      EXPECT_TRUE(prometheus.Has(name) || prometheus.Has(name + "_count")) << name;
    }
    EXPECT_TRUE(
        prometheus.Has("tidetape_job_info{job=\"example\",namespace=\"research\",pod=\"train-0\",node=\"node0\","
                       "slurm_job_id=\"77\"} == 1"));
    // The plan's figure is that of example_job.h for a limit of 1300.
    EXPECT_TRUE(prometheus.Has("tidetape_job_predicted_peak_bytes{job=\"example\"} == 1300"));
    EXPECT_TRUE(prometheus.Has("tidetape_job_step_peak_bytes{job=\"example\"} == 1290"));
    EXPECT_TRUE(prometheus.Has("tidetape_job_replay_seconds{job=\"example\"} == 0"));
    EXPECT_TRUE(prometheus.Has("up{job=\"tidetape\"} == 1"));
    EXPECT_TRUE(prometheus.Has("tidetape_server_store_batch_writes_count > 0"));
    EXPECT_TRUE(Eventually([&] { return prometheus.Has("job:tidetape_job_step_peak:limit_ratio < 1"); }));
    // A rate needs something that happens between two scrapes.
    int64_t step = 2;
    EXPECT_TRUE(Eventually([&] {
      report.set_step(++step);
      return agent.WaitForAck(agent.SendReport(report)) &&
             prometheus.Has("instance:tidetape_server_acknowledgement_seconds:p99_5m >= 0");
    }));

    // What the page names, the guide describes.
    for (const std::string& line : Lines(Metrics(server.http_address()))) {
      if (!absl::StartsWith(line, "# TYPE ")) continue;
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      EXPECT_THAT(documented, testing::Contains(words[2]));
    }
  }
  // The agent is gone without a goodbye; the job ends, is forgotten, and takes its series along.
  EXPECT_TRUE(Eventually([&] { return !prometheus.Has("{job=\"example\"}"); }));
  EXPECT_TRUE(prometheus.Has("tidetape_server_jobs == 0"));
}

TEST_F(PrometheusTest, PromtoolFindsNothingToSayAboutThePage) {
  ServerProcess server(Flags());
  ASSERT_TRUE(server.Start());
  const net::ClientCredentials credentials = Credentials(server.address());
  FakeAgent agent(server.address(), ExampleHello(), FakeAgent::Reading::kAtOnce, credentials);
  agent.SendTape(ExampleTape());
  ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(1))));
  ASSERT_GT(agent.WaitForPlan(1).generation(), 0);
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/metrics") << Metrics(server.http_address());
  const int code = std::system(("promtool check metrics < " + folder_ + "/metrics > " + folder_ + "/said 2>&1").c_str());
  EXPECT_EQ(code, 0) << ReadFile(folder_ + "/said");
  EXPECT_EQ(ReadFile(folder_ + "/said"), "");
}

TEST_F(PrometheusTest, ABusyHttpPortDoesNotStopTheServer) {
  ServerProcess first(Flags());
  ASSERT_TRUE(first.Start());
  ServerProcess second({"--store=memory", "--http_listen=" + first.http_address()});
  ASSERT_TRUE(second.Start());
  EXPECT_EQ(second.http_address(), "");
  FakeAgent agent(second.address(), ExampleHello());
  agent.SendTape(ExampleTape());
  EXPECT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(1))));
}

TEST_F(PrometheusTest, ReadinessEndsWithTheServersAndPlaintextIsForThisMachine) {
  ServerProcess open({"--store=memory", "--http_listen=0.0.0.0:0"});
  EXPECT_FALSE(open.Start());
  EXPECT_EQ(open.Stop(SIGKILL), 1);

  ServerProcess server({"--store=memory", "--http_listen=127.0.0.1:0", "--drain_wait=30s"});
  ASSERT_TRUE(server.Start());
  httplib::Client client("127.0.0.1", std::stoi(server.http_address().substr(server.http_address().rfind(':') + 1)));
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  // An agent that stays keeps the server draining.
  FakeAgent agent(server.address(), ExampleHello());
  agent.SendTape(ExampleTape());
  ASSERT_TRUE(agent.WaitForAck(agent.SendReport(ExampleReport(1))));
  kill(server.pid(), SIGTERM);
  ASSERT_TRUE(agent.WaitForDrain());
  const auto ready = client.Get("/readyz");
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->status, 503);
  EXPECT_EQ(ready->body, "not ready: the server is about to stop\n");
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  agent.HalfClose();
}

}  // namespace
}  // namespace tidetape::server
