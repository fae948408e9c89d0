// tidetapectl: asks the planner service, and plans problem files without one.
//
// Exit codes: 0 all is well; 1 the request was refused or the input is bad; 2 the command line is wrong; 3 the server did not
// answer.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "net/client_security.h"
#include "planner/planner.h"
#include "server/ctl/client.h"
#include "server/ctl/closest_name.h"
#include "server/ctl/file_commands.h"
#include "server/ctl/frontier_svg.h"
#include "server/ctl/output.h"
#include "server/ctl/question_commands.h"
#include "server/ctl/simulate_collectives.h"
#include "server/ctl/units.h"
#include "server/version.h"

namespace tidetape::ctl {
namespace {

using Stub = v1::PlannerService::Stub;

constexpr int kRefused = 1;
constexpr int kUsage = 2;
constexpr int kNoAnswer = 3;

struct Arguments {
  std::string server = "127.0.0.1:50551";
  double timeout_seconds = 10;
  net::ClientSecurity security;
  net::ClientCredentials credentials;  // what the files of `security` hold
  Format format = Format::kText;
  std::string job;
  std::string file;
  std::string svg;
  std::optional<int32_t> block;
  std::string memory_limit;
  planner::Effort effort;
  std::string within;
  std::vector<std::string> save;
  std::vector<std::string> replay;
  std::string additional_base = "0";
  double watch_seconds = 0;
  SimulateCollectivesArguments collectives;
};

Client MakeClient(const Arguments& arguments) {
  return Client(arguments.server, absl::Seconds(arguments.timeout_seconds), arguments.credentials);
}

// Prints a response as JSON, or with `as_text`.
template <typename Response, typename AsText>
absl::Status Print(const absl::StatusOr<Response>& response, Format format, AsText as_text) {
  if (!response.ok()) return response.status();
  if (format == Format::kJson) {
    std::cout << ToJson(*response, true);
  } else {
    as_text(*response);
  }
  return absl::OkStatus();
}

absl::Status Jobs(const Arguments& arguments) {
  return Print(MakeClient(arguments).Call(&Stub::ListJobs, v1::ListJobsRequest()), arguments.format,
               [](const auto& response) { PrintJobs(response, std::cout); });
}

absl::Status Plan(const Arguments& arguments) {
  v1::GetPlanRequest request;
  request.set_job(arguments.job);
  return Print(MakeClient(arguments).Call(&Stub::GetPlan, request), arguments.format,
               [](const auto& response) { PrintPlan(response.plan(), std::cout); });
}

absl::Status Problem(const Arguments& arguments) {
  v1::GetProblemRequest request;
  request.set_job(arguments.job);
  const auto response = MakeClient(arguments).Call(&Stub::GetProblem, request);
  if (!response.ok()) return response.status();
  std::cout << ToJson(response->problem(), true);
  return absl::OkStatus();
}

absl::Status Frontier(const Arguments& arguments) {
  if (arguments.file.empty() == arguments.job.empty()) return absl::InvalidArgumentError("name either a job or --file FILE");
  if (!arguments.within.empty()) {
    if (arguments.file.empty()) return absl::InvalidArgumentError("--within asks a problem file: name it with --file");
    const auto bytes = ParseBytes(arguments.within);
    if (!bytes.ok()) return bytes.status();
    return PrintFastestBlockPlan(arguments.file, arguments.block, *bytes, arguments.effort, arguments.format, std::cout);
  }
  if (!arguments.file.empty()) {
    return PrintFileFrontier(arguments.file, arguments.block, arguments.svg, arguments.format, std::cout);
  }
  v1::GetFrontierRequest request;
  request.set_job(arguments.job);
  if (arguments.block.has_value()) request.set_block(*arguments.block);
  const auto response = MakeClient(arguments).Call(&Stub::GetFrontier, request);
  if (response.ok() && !arguments.svg.empty()) {
    FrontierPicture picture;
    picture.points = response->points();
    if (response->has_current()) picture.current = response->current();
    if (arguments.block.has_value()) {
      picture.title = absl::StrCat("Frontier of block ", *arguments.block, " of ", arguments.job);
      picture.bytes_axis = "saved per block";
    } else {
      picture.title = absl::StrCat("Frontier of ", arguments.job);
      picture.bytes_axis = "step peak";
      picture.limit_bytes = response->memory_limit_bytes();
    }
    if (absl::Status status = WriteFile(arguments.svg, FrontierSvg(picture)); !status.ok()) return status;
  }
  return Print(response, arguments.format,
               [&](const auto& frontier) { PrintFrontier(frontier, arguments.block.has_value(), std::cout); });
}

absl::Status Explain(const Arguments& arguments) {
  v1::ExplainPlanRequest request;
  request.set_job(arguments.job);
  if (arguments.block.has_value()) request.set_block(*arguments.block);
  return Print(MakeClient(arguments).Call(&Stub::ExplainPlan, request), arguments.format,
               [](const auto& response) { PrintExplanation(response, std::cout); });
}

absl::Status Simulate(const Arguments& arguments) {
  v1::SimulatePlanRequest request;
  request.set_job(arguments.job);
  if (!arguments.memory_limit.empty()) {
    const auto limit = ParseLimit(arguments.memory_limit);
    if (!limit.ok()) return limit.status();
    request.set_memory_limit_bytes(*limit);
  }
  const auto additional = ParseBytes(arguments.additional_base);
  if (!additional.ok()) return additional.status();
  request.set_additional_base_bytes(*additional);
  return Print(MakeClient(arguments).Call(&Stub::SimulatePlan, request), arguments.format,
               [](const auto& response) { PrintPlan(response.plan(), std::cout); });
}

absl::Status Watch(const Arguments& arguments) {
  const absl::Duration duration = arguments.watch_seconds > 0 ? absl::Seconds(arguments.watch_seconds) : absl::InfiniteDuration();
  return MakeClient(arguments).Watch(arguments.job, duration, [&](const v1::WatchJobResponse& response) {
    if (arguments.format == Format::kJson) {
      std::cout << ToJson(response, false) << std::flush;
    } else {
      PrintWatched(response, std::cout);
    }
    return std::cout.good();
  });
}

absl::Status End(const Arguments& arguments) {
  v1::EndJobRequest request;
  request.set_job(arguments.job);
  return Print(MakeClient(arguments).Call(&Stub::EndJob, request), arguments.format, [](const auto& response) {
    std::cout << response.summary().job() << ": " << response.summary().end_reason() << "\n";
  });
}

// What is asked of a problem file.
absl::StatusOr<Question> QuestionOf(const Arguments& arguments) {
  Question question{.file = arguments.file, .effort = arguments.effort, .json = arguments.format == Format::kJson};
  if (arguments.memory_limit.empty()) return question;
  const auto limit = ParseLimit(arguments.memory_limit);
  if (!limit.ok()) return limit.status();
  question.memory_limit_bytes = *limit;
  return question;
}

absl::Status Solve(const Arguments& arguments) {
  const auto question = QuestionOf(arguments);
  if (!question.ok()) return question.status();
  return SolveFile(question->file, question->memory_limit_bytes, question->effort, arguments.format, std::cout);
}

absl::Status Policies(const Arguments& arguments) {
  const auto question = QuestionOf(arguments);
  return question.ok() ? ComparePolicies(*question, std::cout) : question.status();
}

absl::Status StepFrontier(const Arguments& arguments) {
  const auto question = QuestionOf(arguments);
  return question.ok() ? PrintStepFrontier(*question, arguments.svg, std::cout) : question.status();
}

absl::Status Price(const Arguments& arguments) {
  const auto question = QuestionOf(arguments);
  return question.ok() ? PriceWishes(*question, arguments.save, arguments.replay, std::cout) : question.status();
}

absl::Status Collectives(const Arguments& arguments) {
  return SimulateCollectives(arguments.collectives, arguments.format, std::cout);
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "tidetapectl: " << status.message() << "\n";
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ? kNoAnswer : kRefused;
}

// The first word that is no option, if no command has that name.
void SuggestCommand(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.empty() || word[0] == '-') continue;
    const std::string closest = ClosestName(word, names);
    if (!closest.empty() && closest != word) std::cerr << "Did you mean '" << closest << "'?\n";
    return;
  }
}

int Run(int argc, char** argv) {
  Arguments arguments;
  absl::Status (*command)(const Arguments&) = nullptr;
  CLI::App app("Asks the Tidetape planner service, and plans problem files without one.", "tidetapectl");
  app.footer("Exit codes: 0 all is well, 1 refused or bad input, 2 wrong command line, 3 no answer from the server.");
  app.set_version_flag("--version", absl::StrCat("tidetapectl ", server::kVersion));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--server", arguments.server, "host:port of tidetape-server")->envname("TIDETAPE_SERVER")->capture_default_str();
  app.add_option("--timeout", arguments.timeout_seconds, "seconds to wait for an answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--tls-ca", arguments.security.ca_file, "PEM file with the authorities that vouch for the server")
      ->envname("TIDETAPE_TLS_CA");
  app.add_option("--tls-cert", arguments.security.certificate_file, "PEM file with your certificate")->envname("TIDETAPE_TLS_CERT");
  app.add_option("--tls-key", arguments.security.key_file, "PEM file with its key")->envname("TIDETAPE_TLS_KEY");
  app.add_option("--tls-name", arguments.security.server_name, "name in the server's certificate, if it is not the host's")
      ->envname("TIDETAPE_TLS_NAME");
  app.add_option("--token-file", arguments.security.token_file, "file that holds your token")->envname("TIDETAPE_TOKEN_FILE");
  std::string format = "text";
  app.add_option("-o,--output,--format", format, "of what is printed")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();

  const auto add = [&](const std::string& name, const std::string& help, absl::Status (*run)(const Arguments&)) {
    CLI::App* added = app.add_subcommand(name, help);
    added->callback([&command, run] { command = run; });
    return added;
  };
  const auto with_job = [&](CLI::App* added) { added->add_option("JOB", arguments.job, "the job's name")->required(); };
  const auto with_block = [&](CLI::App* added) {
    added->add_option("--block", arguments.block, "position of a block in the order of execution, from 0");
  };
  add("jobs", "all jobs, and where they stand", Jobs);
  with_job(add("plan", "the committed plan of a job", Plan));
  with_job(add("problem", "the job's planning problem as a file for solve", Problem));

  CLI::App* frontier =
      add("frontier", "replay time against memory: of a job's step, of one block, or of a tape in a file", Frontier);
  frontier->add_option("JOB", arguments.job, "the job's name");
  with_block(frontier);
  frontier->add_option("--svg", arguments.svg, "write a picture to this file");
  frontier->add_option("--file", arguments.file, "a problem file instead of a job; needs no server");
  frontier->add_option("--within", arguments.within, "with --file: only the fastest plan that saves at most so much, as in 40MiB");

  CLI::App* explain = add("explain", "why each value is kept or replayed", Explain);
  with_job(explain);
  with_block(explain);

  CLI::App* simulate = add("simulate", "what the plan would be under another limit or with more memory in use", Simulate);
  with_job(simulate);
  simulate->add_option("--memory-limit", arguments.memory_limit, "on the step peak, as in 3.5GiB; min or max");
  simulate->add_option("--additional-base", arguments.additional_base, "bytes that every rank holds beside, as in 200MiB");

  CLI::App* watch = add("watch", "a job's events as they come", Watch);
  with_job(watch);
  watch->add_option("--for", arguments.watch_seconds, "seconds to watch; without it, until interrupted");

  with_job(add("end", "ends a job: only a new start of it may report again", End));

  CLI::App* solve = add("solve", "the plan of a problem file; needs no server", Solve);
  CLI::App* policies = add("policies", "what other ways to choose would give on a problem file; needs no server", Policies);
  CLI::App* step_frontier =
      add("step-frontier", "replay time of the step of a problem file against its peak; needs no server", StepFrontier);
  step_frontier->add_option("--svg", arguments.svg, "write a picture to this file");
  CLI::App* price = add("price", "what it costs to have tensors saved or replayed; needs no server", Price);
  price->add_option("--save", arguments.save, "what ops of this name make, as in 'aten::*mm*' or 'aten::gelu@layers.1?'");
  price->add_option("--replay", arguments.replay, "likewise");
  for (CLI::App* of_file : {solve, policies, step_frontier, price}) {
    of_file->add_option("FILE", arguments.file, "a PlanningProblem in JSON")->required();
    of_file->add_option("--memory-limit", arguments.memory_limit, "instead of the file's own, as in 3.5GiB; min or max");
  }
  for (CLI::App* closely : {solve, frontier, policies, price}) {
    closely->add_option("--effort", arguments.effort.visits, "op visits to spend on closing the gap, some ten million a second")
        ->check(CLI::NonNegativeNumber);
    closely
        ->add_option("--gap", arguments.effort.gap_of_full_replay,
                     "a gap that is close enough, as a share of the time of replaying everything")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  }

  CLI::App* collectives = add("simulate-collectives", "collectives on clusters that are not there; needs no server", Collectives);
  collectives->add_option("--gpus", arguments.collectives.gpus, "64, 8,64,512 or 8..4096 (doubling)")->capture_default_str();
  collectives->add_option("--per-node", arguments.collectives.per_node, "GPUs of a node")->capture_default_str();
  collectives->add_option("--model", arguments.collectives.model, "whose units are moved")->capture_default_str();
  collectives->add_option("--links", arguments.collectives.links,
                          "JSON file with rates and latencies; without it, an H100 cluster");
  collectives->add_option("--chunk", arguments.collectives.chunk, "most bytes of one put, as in 4MiB")->capture_default_str();
  collectives->add_option("--gap-us", arguments.collectives.gap_microseconds, "between puts over the network")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  collectives->add_flag("--ring", arguments.collectives.ring, "rings along rails instead of recursive doubling");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    if (code == 0) return 0;
    SuggestCommand(app, argc, argv);
    return kUsage;
  }
  arguments.format = format == "json" ? Format::kJson : Format::kText;
  auto credentials = net::ClientCredentials::Load(arguments.security, arguments.server);
  if (!credentials.ok()) return ExitCode(credentials.status());
  arguments.credentials = *std::move(credentials);
  return ExitCode(command(arguments));
}

}  // namespace
}  // namespace tidetape::ctl

int main(int argc, char** argv) {
  // gRPC's own log would repeat what the error says; whoever wants it sets the variable.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  return tidetape::ctl::Run(argc, argv);
}
