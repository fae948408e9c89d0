// The command line of tidetapectl: its commands and their options.
#ifndef TIDETAPE_SERVER_CTL_COMMAND_LINE_H_
#define TIDETAPE_SERVER_CTL_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>

#include "server/ctl/arguments.h"

namespace tidetape::ctl {

// What was parsed.
struct CommandLine {
  Arguments arguments;
  Command command = nullptr;
  std::string shell;         // whose completion was asked for; empty: none
  bool needs_server = true;  // the command asks a server
};

// Declares everything on `app`; parsing fills `line`. Both outlive each other's use.
void DeclareCommands(CLI::App& app, CommandLine& line);

// The command that a mistyped one was meant to be; empty where none is near.
std::string SuggestedCommand(const CLI::App& app, int argc, char** argv);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_COMMAND_LINE_H_
