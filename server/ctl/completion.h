// Shell completion, made of the command line itself, so that it never falls behind.
#ifndef TIDETAPE_SERVER_CTL_COMPLETION_H_
#define TIDETAPE_SERVER_CTL_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tidetape::ctl {

inline const std::vector<std::string>& CompletionShells() {
  static const auto& shells = *new std::vector<std::string>{"bash", "zsh", "fish"};
  return shells;
}

// A script for the shell: commands, their options, and as values jobs, contexts, and files where an option's name says so.
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_COMPLETION_H_
