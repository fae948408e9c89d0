// tidetapectl: asks the planner service, and plans problem files without one.
//
// Exit codes: 0 all is well; 1 the request was refused or the input is bad; 2 the command line is wrong; 3 the server did not
// answer; 4 a token or a right is missing; 5 there is no such job or plan.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "net/client_security.h"
#include "net/error_info.h"
#include "server/ctl/arguments.h"
#include "server/ctl/command_line.h"
#include "server/ctl/completion.h"
#include "server/ctl/contexts.h"
#include "server/ctl/output.h"

namespace tidetape::ctl {
namespace {

constexpr int kUsage = 2;

int ExitCode(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 3;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return 4;
    case absl::StatusCode::kNotFound:
      return 5;
    default:
      return 1;
  }
}

// To standard error: a sentence, or with -o json {"error": {"code", "reason", "message", "metadata"}} in one line.
void PrintError(const absl::Status& status, const OutputFormat& format) {
  if (!format.json()) {
    std::cerr << "tidetapectl: " << status.message() << "\n";
    return;
  }
  const v1::ErrorInfo info = net::ErrorInfoOf(status).value_or(v1::ErrorInfo());
  std::string metadata;
  for (const auto& [key, value] : std::map<std::string, std::string>(info.metadata().begin(), info.metadata().end())) {
    absl::StrAppend(&metadata, metadata.empty() ? "" : ",", JsonString(key), ":", JsonString(value));
  }
  std::cerr << "{\"error\":{\"code\":" << JsonString(absl::StatusCodeToString(status.code()))
            << ",\"reason\":" << JsonString(info.reason()) << ",\"message\":" << JsonString(std::string(status.message()))
            << ",\"metadata\":{" << metadata << "}}}\n";
}

// Runs the command again and again, and prints what differs from the last time.
absl::Status RunAgainAndAgain(Command command, const Arguments& arguments) {
  const absl::Time end = absl::Now() + WatchTime(arguments);
  const bool screen = isatty(STDOUT_FILENO) == 1 && !arguments.output.json();
  std::string last;
  while (std::cout.good()) {
    std::ostringstream out;
    if (absl::Status status = command(arguments, out); !status.ok()) return status;
    if (out.str() != last) {
      last = out.str();
      if (screen) std::cout << "\x1b[H\x1b[2J";
      std::cout << last << std::flush;
    }
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    absl::SleepFor(std::min(left, absl::Seconds(arguments.every_seconds)));
  }
  return absl::OkStatus();
}

absl::Status RunCommand(CommandLine& line) {
  Arguments& arguments = line.arguments;
  if (line.needs_server) {
    if (absl::Status status = CompleteConnection(arguments.context, arguments.connection); !status.ok()) return status;
    auto credentials = net::ClientCredentials::Load(arguments.connection.security, arguments.connection.server);
    if (!credentials.ok()) return credentials.status();
    arguments.credentials = *std::move(credentials);
  }
  if (!arguments.watch) return line.command(arguments, std::cout);
  arguments.output.one_line = true;
  return RunAgainAndAgain(line.command, arguments);
}

int Run(int argc, char** argv) {
  CommandLine line;
  CLI::App app("Asks the Tidetape planner service, and plans problem files without one.", "tidetapectl");
  DeclareCommands(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return 0;
    if (const std::string closest = SuggestedCommand(app, argc, argv); !closest.empty()) {
      std::cerr << "Did you mean '" << closest << "'?\n";
    }
    return kUsage;
  }
  if (!line.shell.empty()) {
    std::cout << CompletionScript(app, line.shell);
    return 0;
  }
  const absl::Status status = RunCommand(line);
  if (!status.ok()) PrintError(status, line.arguments.output);
  return ExitCode(status.code());
}

}  // namespace
}  // namespace tidetape::ctl

int main(int argc, char** argv) {
  // gRPC's own log would repeat what the error says; whoever wants it sets the variable.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  return tidetape::ctl::Run(argc, argv);
}
