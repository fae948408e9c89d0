#include "server/ctl/command_line.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/common/version.h"
#include "server/ctl/ask_commands.h"
#include "server/ctl/change_commands.h"
#include "server/ctl/closest_name.h"
#include "server/ctl/compare_plans.h"
#include "server/ctl/completion.h"
#include "server/ctl/contexts.h"
#include "server/ctl/file_commands.h"
#include "server/ctl/frontier_commands.h"
#include "server/ctl/target.h"
#include "server/ctl/what_if_commands.h"
#include "server/text/units.h"

namespace tidetape::ctl {
namespace {

absl::Status Solve(const Arguments& arguments, std::ostream& out) {
  const auto question = QuestionOf(arguments);
  if (!question.ok()) return question.status();
  return SolveFile(question->file, question->memory_limit_bytes, question->effort, arguments.output, out);
}

absl::Status Collectives(const Arguments& arguments, std::ostream& out) {
  return SimulateCollectives(arguments.collectives, arguments.output, out);
}

absl::Status ContextNames(const Arguments& arguments, std::ostream& out) {
  if (const auto contexts = ReadContexts(ContextsFile()); contexts.ok()) {
    for (const auto& [name, connection] : contexts->by_name) out << name << "\n";
  }
  return absl::OkStatus();
}

// Adds commands to a parent, with the options that several share.
class Declarer {
 public:
  Declarer(CLI::App& parent, CommandLine& line) : parent_(parent), line_(line), arguments_(line.arguments) {}

  CLI::App* Add(const std::string& name, const std::string& help, Command run) {
    CLI::App* added = parent_.add_subcommand(name, help);
    added->callback([line = &line_, run] { line->command = run; });
    return added;
  }
  // One that needs no server.
  CLI::App* AddLocal(const std::string& name, const std::string& help, Command run) {
    CLI::App* added = parent_.add_subcommand(name, help);
    added->callback([line = &line_, run] {
      line->command = run;
      line->needs_server = false;
    });
    return added;
  }
  CLI::App* AddOfJob(const std::string& name, const std::string& help, Command run) {
    CLI::App* added = Add(name, help, run);
    added->add_option("JOB", arguments_.job, "the job's name")->required();
    return added;
  }
  // One of a job, or of a problem file with --file.
  CLI::App* AddOfTarget(const std::string& name, const std::string& help, Command run) {
    CLI::App* added = Add(name, help, run);
    added->add_option("JOB", arguments_.job, "the job's name");
    added->add_option("--file", arguments_.file, "a problem file instead of a job; needs no server");
    added->add_option("--memory-limit", arguments_.memory_limit, "instead of the target's own, as in 3.5GiB; min or max");
    return added;
  }
  CLI::App* WithBlock(CLI::App* command) {
    command->add_option("--block", arguments_.block, "position of a block in the order of execution, from 0");
    return command;
  }
  CLI::App* WithEffort(CLI::App* command) {
    command
        ->add_option("--effort", arguments_.effort.visits,
                     "op visits to spend on closing the gap, some ten million a second; half a million at least")
        ->check(CLI::NonNegativeNumber);
    command
        ->add_option("--gap", arguments_.effort.gap_of_full_replay,
                     "a gap that is close enough, as a share of the time of replaying everything")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command
        ->add_option("--deadline", arguments_.deadline_seconds,
                     "seconds from the start after which the best plan so far is taken, with its gap; without --effort, "
                     "nothing else ends the search")
        ->check(CLI::PositiveNumber);
    return command;
  }
  CLI::App* WithWatch(CLI::App* command) {
    command->add_flag("-w,--watch", arguments_.watch, "ask again and again, and print what has changed");
    command->add_option("--every", arguments_.every_seconds, "seconds between two questions of --watch")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    return WithTime(command);
  }
  CLI::App* WithTime(CLI::App* command) {
    command->add_option("--for", arguments_.for_seconds, "seconds to watch; without it, until interrupted");
    return command;
  }

 private:
  CLI::App& parent_;
  CommandLine& line_;
  Arguments& arguments_;
};

void DeclareGlobals(CLI::App& app, Arguments& arguments) {
  const std::map<std::string, std::string> help = {
      {"server", "host:port of tidetape-server (127.0.0.1:50551)"},
      {"tls-ca", "PEM file with the authorities that vouch for the server"},
      {"tls-cert", "PEM file with your certificate"},
      {"tls-key", "PEM file with its key"},
      {"tls-name", "name in the server's certificate, if it is not the host's"},
      {"token-file", "file that holds your token"},
  };
  for (const auto& [name, value] : SettingsOf(arguments.connection)) app.add_option("--" + name, *value, help.at(name));
  app.add_option("--context", arguments.context, "the context to take what is not said here from; see `tidetapectl context`");
  app.add_option("--timeout", arguments.timeout_seconds, "seconds to wait for an answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  const std::map<std::string, OutputFormat::Kind> formats = {
      {"text", OutputFormat::kText}, {"wide", OutputFormat::kWide}, {"json", OutputFormat::kJson}};
  app.add_option("-o,--output,--format", arguments.output.kind, "text, wide (more columns) or json")
      ->transform(CLI::CheckedTransformer(formats));
}

void DeclareQuestions(Declarer& declare, Arguments& arguments) {
  declare.WithWatch(declare.Add("jobs", "all jobs, and where they stand", Jobs));
  declare.WithWatch(declare.AddOfJob("job", "one job: its ranks, and what operators asked of it", ShowJob));
  declare.WithWatch(declare.AddOfJob("plan", "the committed plan of a job, block by block", Plan))
      ->add_option("--generation", arguments.generation, "an older plan instead");
  declare.WithWatch(declare.AddOfJob("plans", "the plans of a job that are kept, newest first", Plans));
  declare.AddOfJob("problem", "the job's planning problem as a file for solve", Problem);

  CLI::App* frontier = declare.WithWatch(
      declare.Add("frontier", "replay time against memory: of a job's step, of one block, or of a tape in a file", Frontier));
  frontier->add_option("JOB", arguments.job, "the job's name");
  declare.WithBlock(frontier);
  frontier->add_option("--svg", arguments.svg, "write a picture to this file");
  frontier->add_option("--file", arguments.file, "a problem file instead of a job; needs no server");
  frontier->add_option("--within", arguments.within, "only the fastest plan of one block that saves at most so much, as in 40MiB");
  declare.WithEffort(frontier);

  declare.WithWatch(declare.AddOfJob("memory", "memory through the step, predicted and measured", Memory));
  declare.WithBlock(declare.AddOfJob("explain", "why each value is kept or replayed", Explain));

  CLI::App* simulate =
      declare.AddOfJob("simulate", "what the plan would be under another limit or with more memory in use", Simulate);
  simulate->add_option("--memory-limit", arguments.memory_limit, "on the step peak, as in 3.5GiB; min or max");
  simulate->add_option("--additional-base", arguments.additional_base, "bytes that every rank holds beside, as in 200MiB");
  declare.WithEffort(simulate);

  CLI::App* policies =
      declare.AddOfTarget("policies", "what other ways to choose would give, of a job or a problem file", Policies);
  declare.WithEffort(policies);
  CLI::App* price = declare.AddOfTarget("price", "what it costs to have tensors saved or replayed", Price);
  price->add_option("--save", arguments.saved,
                    "of a job, values by label, as in 'aten::mm*@model.layers.1?'; of a file, what ops of this name make");
  price->add_option("--replay", arguments.replayed, "likewise");
  declare.WithEffort(price);
  CLI::App* step_frontier = declare.AddOfTarget("step-frontier", "replay time of the step against its peak", StepFrontier);
  step_frontier->add_option("--svg", arguments.svg, "write a picture to this file");
  CLI::App* largest =
      declare.AddOfJob("largest", "the largest batch, or the longest sequence, that fits, and its time a token", Largest);
  largest->add_option("--of", arguments.axis, "batch, sequence or rows; without it, whatever runs were seen to differ in");
  largest->add_option("--memory-limit", arguments.memory_limit, "instead of the job's own, as in 3.5GiB");

  CLI::App* compare = declare.AddOfJob("compare", "what two plans do differently; JOB@GENERATION names an older plan", Compare);
  compare->add_option("JOB2", arguments.other_job, "the other plan; without it, JOB's plan is compared with the one before it");

  declare.WithTime(declare.AddOfJob("watch", "a job's events as they come", Watch));
  declare.Add("job-names", "for completion", JobNames)->group("");
}

void DeclareChanges(Declarer& declare, Arguments& arguments) {
  declare.AddOfJob("set-limit", "sets the limit on a job's step peak", SetLimit)
      ->add_option("LIMIT", arguments.memory_limit, "as in 3.5GiB; min, max, or own for the agents' own")
      ->required();
  CLI::App* pin = declare.AddOfJob("pin", "keeps or replays values whatever the planner thinks", PinValues);
  pin->add_option("--block", arguments.block_glob, "which blocks, as in 'model.layers.*'");
  pin->add_option("--value", arguments.value_glob, "which values, by their labels as explain shows them, as in 'aten::mm*'");
  pin->add_flag("--save", arguments.save, "keep them");
  pin->add_flag("--replay", arguments.replay, "replay them");
  pin->add_flag("--clear", arguments.clear, "take all pins away");
  declare.AddOfJob("freeze", "the plan in force stays, whatever is measured", Freeze);
  declare.AddOfJob("rollback", "goes back to an earlier plan, and stays there", Rollback)
      ->add_option("--to", arguments.generation, "its generation; without it, the newest that differs from the one in force");
  declare.AddOfJob("disable", "keeps everything, as training without Tidetape does", Disable)
      ->add_flag("--force", arguments.force, "also where that exceeds the job's limit");
  declare.AddOfJob("resume", "plans follow the job again, after freeze, rollback or disable", Resume);
  declare.AddOfJob("end", "ends the job: only a new start of it may report again", End);
}

void DeclareLocals(Declarer& declare, Arguments& arguments) {
  CLI::App* solve = declare.AddLocal("solve", "the plan of a problem file; needs no server", Solve);
  solve->add_option("FILE", arguments.file, "a PlanningProblem in JSON")->required();
  solve->add_option("--memory-limit", arguments.memory_limit, "instead of the file's own, as in 3.5GiB; min or max");
  declare.WithEffort(solve);

  CLI::App* collectives =
      declare.AddLocal("simulate-collectives", "collectives on clusters that are not there; needs no server", Collectives);
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
}

void DeclareContexts(CLI::App& app, CommandLine& line) {
  CLI::App* context = app.add_subcommand("context", "servers with names, so that nobody has to type addresses and files");
  context->require_subcommand(1);
  context->fallthrough();
  Declarer declare(*context, line);
  const auto with_name = [&line](CLI::App* command) {
    command->add_option("NAME", line.arguments.name, "the context's name")->required();
  };
  declare.AddLocal("list", "all contexts; the one in use has a star", ListContexts);
  with_name(declare.AddLocal("set", "makes or changes a context, of the options --server, --token-file and --tls-*", SetContext));
  with_name(declare.AddLocal("use", "puts a context into use", UseContext));
  with_name(declare.AddLocal("delete", "forgets a context", DeleteContext));
  declare.AddLocal("names", "for completion", ContextNames)->group("");
}

}  // namespace

void DeclareCommands(CLI::App& app, CommandLine& line) {
  app.footer(
      "Exit codes: 0 all is well, 1 refused or bad input, 2 wrong command line, 3 no answer from the server, 4 a token or a right "
      "is "
      "missing, 5 there is no such job or plan.");
  app.set_version_flag("--version", absl::StrCat("tidetapectl ", server::kVersion));
  app.require_subcommand(1);
  app.fallthrough();
  DeclareGlobals(app, line.arguments);
  Declarer declare(app, line);
  DeclareQuestions(declare, line.arguments);
  DeclareChanges(declare, line.arguments);
  DeclareLocals(declare, line.arguments);
  DeclareContexts(app, line);
  app.add_subcommand("completion", "a script that completes commands in your shell")
      ->add_option("SHELL", line.shell, "bash, zsh or fish")
      ->check(CLI::IsMember(CompletionShells()))
      ->required();
}

std::string SuggestedCommand(const CLI::App& app, int argc, char** argv) {
  const CLI::App* level = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.empty() || word[0] == '-') continue;
    std::vector<std::string> names;
    const CLI::App* found = nullptr;
    for (const CLI::App* command : level->get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); })) {
      names.push_back(command->get_name());
      if (command->get_name() == word) found = command;
    }
    if (found == nullptr) return ClosestName(word, names);
    if (found->get_subcommands([](const CLI::App*) { return true; }).empty()) return "";
    level = found;
  }
  return "";
}

}  // namespace tidetape::ctl
