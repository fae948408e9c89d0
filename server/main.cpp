// tidetape-server: the planner service.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/auth/audit_log.h"
#include "server/auth/authenticator.h"
#include "server/auth/server_tls.h"
#include "server/auth/token_file.h"
#include "server/common/clock.h"
#include "server/common/log.h"
#include "server/common/version.h"
#include "server/http/http_server.h"
#include "server/http/job_insights.h"
#include "server/http/monitoring_pages.h"
#include "server/http/status_pages.h"
#include "server/lease_keeper.h"
#include "server/metrics/metrics_page.h"
#include "server/metrics/process_values.h"
#include "server/metrics/server_metrics.h"
#include "server/server.h"
#include "server/store/open_store.h"
#include "server/store/postgres_store.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:50551",
          "host:port to listen on; port 0 takes a free one. Other addresses than this machine's own need a certificate.");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file with the server's certificate and those that vouch for it; read again when it changes.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with the certificate's key.");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file with authorities; clients must then bring a certificate of theirs (mutual TLS).");
ABSL_FLAG(bool, allow_plaintext, false, "Listen without a certificate also where other machines can connect.");
ABSL_FLAG(std::string, token_file, "",
          "File with the tokens that are accepted, a line each: NAME ROLE SHA256 [JOBS], with ROLE agent, reader or operator. Read "
          "again when it changes. Without it whoever can connect may do everything.");
ABSL_FLAG(std::string, audit_log, "", "File to which changes of limits and pins are appended, one JSON object a line.");
ABSL_FLAG(uint32_t, streams_per_peer, 16384, "Most streams that one peer (a token's name and a host) may have open.");
ABSL_FLAG(double, messages_per_second, 100,
          "Of one stream, in the long run; whoever sends more is read more slowly. 0: any number.");
ABSL_FLAG(int32_t, max_message_bytes, 8 << 20, "Largest message that is taken.");
ABSL_FLAG(std::string, http_listen, "127.0.0.1:50552",
          "host:port of the HTTP port with the status page, /metrics, /healthz and /readyz; port 0 takes a free one, empty: no "
          "such port. Where it is "
          "taken the server goes on without it and tries again. Certificates and tokens are those of --listen.");
ABSL_FLAG(std::string, http_prefix, "", "Before the paths of the HTTP port, as in /tidetape, for a proxy.");
ABSL_FLAG(std::string, grafana_url, "",
          "Dashboard that the status page of a job links to, with {job} for the job's name, as in "
          "https://grafana.example/d/tidetape-job?var-job={job}.");
ABSL_FLAG(std::string, address_file, "",
          "Write the address that was bound to this file, once the server listens; on a second line that of the HTTP port, where "
          "it has it.");
ABSL_FLAG(std::string, store, "sqlite",
          "Where jobs are kept: sqlite (a file in $STATE_DIRECTORY, $XDG_STATE_HOME/tidetape or ~/.local/state/tidetape), "
          "sqlite:PATH, postgresql://USER@HOST/DATABASE (shared by several servers), or memory (forgotten when the server stops).");
ABSL_FLAG(
    std::string, advertise, "",
    "host:port where agents reach this server, told by the servers that stand by; without it, the address that it listens on.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(2), "With PostgreSQL: how long the other servers wait for a leader that is silent.");
ABSL_FLAG(absl::Duration, end_after_silence, absl::Hours(1), "A job without a connected rank for this long has ended.");
ABSL_FLAG(absl::Duration, retention, absl::Hours(7 * 24), "A job is forgotten this long after its end.");
ABSL_FLAG(
    int64_t, known_run_bytes, int64_t{256} << 20,
    "What is kept of runs that were measured, so that a job of the same blocks has its plan with its first report; 0: nothing.");
ABSL_FLAG(absl::Duration, known_run_retention, absl::Hours(90 * 24), "A run that no job used for this long is forgotten.");
ABSL_FLAG(std::string, log_level, "info", "trace, debug, info, warning, error, critical or off; the log goes to stderr.");
ABSL_FLAG(absl::Duration, drain_wait, absl::Seconds(3), "How long agents have to leave after SIGTERM or SIGINT.");

namespace tidetape::server {
namespace {

// Whoever waits for the file never sees half of it.
absl::Status WriteAddressFile(const std::string& path, const std::string& addresses) {
  const std::string unfinished = path + ".part";
  std::ofstream(unfinished) << addresses << "\n";
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write --address_file=", path));
  }
  return absl::OkStatus();
}

// `http`: null where there is no HTTP port.
absl::Status Announce(const std::string& address, const HttpServer* http) {
  std::cout << "tidetape-server listening on " << address << std::endl;
  spdlog::info("tidetape-server {} listening on {}", kVersion, address);
  const std::string path = absl::GetFlag(FLAGS_address_file);
  if (path.empty()) return absl::OkStatus();
  const std::string http_address = http == nullptr ? "" : http->address();
  return WriteAddressFile(path, http_address.empty() ? address : absl::StrCat(address, "\n", http_address));
}

void AwaitSignal(const sigset_t& signals) {
  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: draining", signal == SIGTERM ? "SIGTERM" : "SIGINT");
}

ServerTls TlsFlags() { return {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key), absl::GetFlag(FLAGS_tls_client_ca)}; }

// What the server counts, and the page that shows it.
struct Metrics {
  Metrics() : counted(&registry) { AddProcessValues(process); }

  prometheus::Registry registry;
  ServerMetrics counted;
  ScrapedValues process;
};

// Null where there is no HTTP port. All outlive it.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttp(Server& server, const Metrics& metrics, const Authenticator& authenticator,
                                                      Clock& clock) {
  HttpServer::Options options;
  options.listen = absl::GetFlag(FLAGS_http_listen);
  if (options.listen.empty()) return nullptr;
  options.prefix = absl::GetFlag(FLAGS_http_prefix);
  options.tls = TlsFlags();
  const bool allow_plaintext = absl::GetFlag(FLAGS_allow_plaintext);
  if (absl::Status status = CheckServerTls(options.tls, "--http_listen", options.listen, allow_plaintext); !status.ok()) {
    return status;
  }
  MonitoringSources monitoring;
  monitoring.authenticator = &authenticator;
  monitoring.ready = [&server] { return server.Ready(); };
  monitoring.metrics = [&server, &metrics] {
    std::vector<const prometheus::Collectable*> shown = {&metrics.registry, &metrics.process};
    for (const prometheus::Collectable* source : server.collectables()) shown.push_back(source);
    return RenderMetrics(shown);
  };
  StatusSources status_page;
  status_page.authenticator = &authenticator;
  status_page.clock = &clock;
  status_page.ready = monitoring.ready;
  status_page.jobs = [&server] { return server.jobs(); };
  status_page.streams = [&server] { return server.streams(); };
  status_page.insights = std::make_shared<JobInsights>(
      JobInsights::Options(), &clock, [&server](std::function<void()> task) { return server.PostQuestion(std::move(task)); });
  status_page.grafana_url = absl::GetFlag(FLAGS_grafana_url);
  if (absl::Status status = CheckGrafanaUrl(status_page.grafana_url); !status.ok()) return status;
  std::map<std::string, HttpServer::Page> pages = MakeMonitoringPages(monitoring);
  pages.merge(MakeStatusPages(status_page));
  return HttpServer::Start(options, std::move(pages));
}

// With a store that is this server's alone.
absl::Status ServeAlone(const std::string& name, const Server::Options& options, Metrics& metrics, const sigset_t& signals) {
  SystemClock clock;
  const auto store = OpenStore(name, &clock, &metrics.counted);
  if (!store.ok()) return store.status();
  const auto server = Server::Start(options, store->get(), &clock);
  if (!server.ok()) return server.status();
  const auto http = StartHttp(**server, metrics, *options.authenticator, clock);
  if (!http.ok()) return http.status();
  if (absl::Status status = Announce((*server)->address(), http->get()); !status.ok()) return status;
  AwaitSignal(signals);
  (*server)->Drain();
  spdlog::info("stopped");
  return absl::OkStatus();
}

// With a store that several servers share: stands by until it has the leader's lease, and ends when it has lost it.
absl::Status ServeFromPostgres(const std::string& connection, Server::Options options, Metrics& metrics, const sigset_t& signals) {
  SystemClock clock;
  const absl::Duration lease = absl::GetFlag(FLAGS_lease);
  const auto store = PostgresStore::Make(connection, lease, &metrics.counted);
  if (!store.ok()) return store.status();
  spdlog::info("store in {}", (*store)->place());
  options.stand_by = true;
  const auto server = Server::Start(options, &(*store)->store(), &clock);
  if (!server.ok()) return server.status();
  const auto http = StartHttp(**server, metrics, *options.authenticator, clock);
  if (!http.ok()) return http.status();
  if (absl::Status status = Announce((*server)->address(), http->get()); !status.ok()) return status;

  absl::Status lost;
  LeaseKeeper::Options keeping;
  keeping.address = absl::GetFlag(FLAGS_advertise).empty() ? (*server)->address() : absl::GetFlag(FLAGS_advertise);
  keeping.interval = lease / 8;
  keeping.stand_by = [&](const std::string& leader) { (*server)->StandBy(leader); };
  keeping.lead = [&](int64_t term) {
    absl::Status status = (*store)->Lead(term, &clock);
    return status.ok() ? (*server)->Lead() : status;
  };
  keeping.lost = [&lost](const absl::Status& status) {
    lost = status;
    kill(getpid(), SIGTERM);
  };
  auto keeper = std::make_unique<LeaseKeeper>(&(*store)->lease(), keeping);
  AwaitSignal(signals);
  // First of all, so that agents that are sent away find the next leader.
  keeper.reset();
  (*server)->Drain();
  spdlog::info("stopped");
  return lost;
}

absl::Status Serve() {
  if (absl::Status status = SetUpLog(absl::GetFlag(FLAGS_log_level)); !status.ok()) return status;
  // Blocked before any thread is made, so that only sigwait below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  Server::Options options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.drain_wait = absl::GetFlag(FLAGS_drain_wait);
  options.registry.end_after_silence = absl::GetFlag(FLAGS_end_after_silence);
  options.registry.retention = absl::GetFlag(FLAGS_retention);
  options.registry.known_run_retention = absl::GetFlag(FLAGS_known_run_retention);
  options.registry.activation.known_run_bytes = absl::GetFlag(FLAGS_known_run_bytes);
  options.streams_per_peer = absl::GetFlag(FLAGS_streams_per_peer);
  options.messages_per_second = absl::GetFlag(FLAGS_messages_per_second);
  options.max_receive_bytes = absl::GetFlag(FLAGS_max_message_bytes);

  SystemClock clock;
  auto credentials = MakeServerCredentials(TlsFlags(), options.listen, absl::GetFlag(FLAGS_allow_plaintext));
  if (!credentials.ok()) return credentials.status();
  options.credentials = *std::move(credentials);
  std::unique_ptr<TokenFile> tokens;
  if (const std::string path = absl::GetFlag(FLAGS_token_file); !path.empty()) {
    auto opened = TokenFile::Open(path, &clock);
    if (!opened.ok()) return opened.status();
    tokens = *std::move(opened);
  }
  const Authenticator authenticator(std::move(tokens));
  options.authenticator = &authenticator;
  const auto audit = AuditLog::Open(absl::GetFlag(FLAGS_audit_log), &clock);
  if (!audit.ok()) return audit.status();
  options.audit = audit->get();

  const std::string store = absl::GetFlag(FLAGS_store);
  Metrics metrics;
  options.metrics = &metrics.counted;
  return IsPostgres(store) ? ServeFromPostgres(store, options, metrics, signals) : ServeAlone(store, options, metrics, signals);
}

}  // namespace
}  // namespace tidetape::server

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("The planner service of Tidetape. Stop it with SIGTERM.");
  absl::FlagsUsageConfig usage;
  usage.version_string = [] { return absl::StrCat("tidetape-server ", tidetape::server::kVersion, "\n"); };
  absl::SetFlagsUsageConfig(usage);
  const auto rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::cerr << "tidetape-server: unexpected argument '" << rest[1] << "'; see --help\n";
    return 2;
  }
  const absl::Status status = tidetape::server::Serve();
  if (status.ok()) return 0;
  std::cerr << "tidetape-server: " << status.message() << "\n";
  return 1;
}
