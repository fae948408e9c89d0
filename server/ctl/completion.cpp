#include "server/ctl/completion.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace tidetape::ctl {
namespace {

constexpr char kZshBegin[] = "#compdef tidetapectl\nautoload -U +X bashcompinit && bashcompinit\n";

// Words in capitals are filled in.
constexpr char kBashScript[] = R"bash(BEGIN_tidetapectl() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local command="" words="" options="" skip="" word i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}"
    if [[ -n $skip ]]; then skip=""; continue; fi
    case "$word" in
      WITH_VALUES) skip=1 ;;
      -*) ;;
      *) if [[ -z $command ]]; then command="$word"; elif [[ $command == NESTED ]]; then command="$command $word"; fi ;;
    esac
  done
  case "$previous" in
    -o|--output|--format) COMPREPLY=($(compgen -W "text wide json" -- "$current")); return 0 ;;
    --context) COMPREPLY=($(compgen -W "$(tidetapectl context names 2>/dev/null)" -- "$current")); return 0 ;;
    --file|--svg|--links|--token-file|--tls-ca|--tls-cert|--tls-key) COMPREPLY=($(compgen -f -- "$current")); return 0 ;;
  esac
  case "$command" in
    "") words="COMMANDS" ;;
CASES  esac
  [[ $current == -* ]] && words="$options OPTIONS"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ $command == solve && $current != -* ]] && COMPREPLY=($(compgen -f -- "$current"))
  return 0
}
complete -F _tidetapectl tidetapectl
)bash";

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

// "--limit", "-w" and so on of one command, without those of the whole program.
std::vector<std::string> OptionsOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool TakesJob(const CLI::App& command) {
  const auto options = command.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_positional() && option->get_name(true).rfind("JOB", 0) == 0;
  });
}

bool TakesContext(const CLI::App& command) {
  return command.get_parent() != nullptr && command.get_parent()->get_name() == "context";
}

// What may follow a command that is no option, in words of the script.
std::string WordsAfter(const CLI::App& command) {
  if (!CommandsOf(command).empty()) {
    return absl::StrJoin(CommandsOf(command), " ",
                         [](std::string* out, const CLI::App* app) { absl::StrAppend(out, app->get_name()); });
  }
  if (TakesJob(command)) return "$(tidetapectl job-names 2>/dev/null)";
  if (TakesContext(command)) return "$(tidetapectl context names 2>/dev/null)";
  if (command.get_name() == "completion") return absl::StrJoin(CompletionShells(), " ");
  return "";
}

void AppendBashCases(const CLI::App& app, const std::string& path, std::string& script) {
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string own = path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name());
    absl::StrAppend(&script, "    \"", own, "\") words=\"", WordsAfter(*command), "\"; options=\"",
                    absl::StrJoin(OptionsOf(*command), " "), "\" ;;\n");
    AppendBashCases(*command, own, script);
  }
}

// In zsh, the same by its own emulation of bash's completion.
std::string BashScript(const CLI::App& app, bool zsh) {
  std::string nested;
  for (const CLI::App* command : CommandsOf(app)) {
    if (!CommandsOf(*command).empty()) absl::StrAppend(&nested, nested.empty() ? "" : "|", command->get_name());
  }
  // Options of the whole program come before the command, too, with their values.
  std::vector<std::string> with_values;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_min() == 0) continue;
    for (const std::string& name : option->get_lnames()) with_values.push_back("--" + name);
    for (const std::string& name : option->get_snames()) with_values.push_back("-" + name);
  }
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  std::string cases;
  AppendBashCases(app, "", cases);
  return absl::StrReplaceAll(kBashScript, {{"BEGIN", zsh ? kZshBegin : "shopt -s extglob\n"},
                                           {"WITH_VALUES", absl::StrJoin(with_values, "|")},
                                           {"NESTED", zsh ? absl::StrCat("(", nested, ")") : absl::StrCat("@(", nested, ")")},
                                           {"COMMANDS", absl::StrJoin(names, " ")},
                                           {"CASES", cases},
                                           {"OPTIONS", absl::StrJoin(OptionsOf(app), " ")}});
}

std::string FishQuote(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

void AppendFishOptions(const CLI::App& command, const std::string& condition, std::string& script) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) continue;
    absl::StrAppend(&script, "complete -c tidetapectl", condition.empty() ? "" : absl::StrCat(" -n ", FishQuote(condition)));
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&script, " -l ", name);
    for (const std::string& name : option->get_snames()) absl::StrAppend(&script, " -s ", name);
    const auto named = [option](const char* name) { return option->check_lname(name); };
    if (named("output")) {
      absl::StrAppend(&script, " -x -a 'text wide json'");
    } else if (named("context")) {
      absl::StrAppend(&script, " -x -a '(tidetapectl context names 2>/dev/null)'");
    } else if (option->get_items_expected_min() > 0) {
      absl::StrAppend(&script, " -r");
    }
    absl::StrAppend(&script, " -d ", FishQuote(option->get_description()), "\n");
  }
}

void AppendFishCommands(const CLI::App& app, const std::string& seen, std::string& script) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  const std::string none_yet =
      absl::StrCat(seen.empty() ? "" : seen + "; and ", "not __fish_seen_subcommand_from ", absl::StrJoin(names, " "));
  for (const CLI::App* command : CommandsOf(app)) {
    absl::StrAppend(&script, "complete -c tidetapectl -n ", FishQuote(none_yet), " -a ", command->get_name(), " -d ",
                    FishQuote(command->get_description()), "\n");
    const std::string own = absl::StrCat(seen.empty() ? "" : seen + "; and ", "__fish_seen_subcommand_from ", command->get_name());
    if (!CommandsOf(*command).empty()) {
      AppendFishCommands(*command, own, script);
    } else if (const std::string words = WordsAfter(*command); !words.empty()) {
      absl::StrAppend(&script, "complete -c tidetapectl -n ", FishQuote(own), " -a '", absl::StrReplaceAll(words, {{"$(", "("}}),
                      "'\n");
    }
    AppendFishOptions(*command, own, script);
  }
}

std::string FishScript(const CLI::App& app) {
  std::string script = "complete -c tidetapectl -f\n";
  AppendFishOptions(app, "", script);
  AppendFishCommands(app, "", script);
  absl::StrAppend(&script, "complete -c tidetapectl -n '__fish_seen_subcommand_from solve' -F\n");
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  return shell == "fish" ? FishScript(app) : BashScript(app, shell == "zsh");
}

}  // namespace tidetape::ctl
