// Contexts: servers that a person asks, each with a name, its address and the files that prove who the person is.
//
// They lie in one file, TOML with a table a context. It names files and holds no token.
//
//   current = "prod"
//   [prod]
//   server = "planner.example:50551"
//   token-file = "/home/ada/ada.token"
//   tls-ca = "/etc/tidetape/ca.pem"          also tls-cert, tls-key, tls-name
#ifndef TIDETAPE_SERVER_CTL_CONTEXTS_H_
#define TIDETAPE_SERVER_CTL_CONTEXTS_H_

#include <map>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/ctl/arguments.h"

namespace tidetape::ctl {

struct Contexts {
  std::string current;  // empty: none
  std::map<std::string, Connection> by_name;

  // NotFound, with the nearest name.
  absl::StatusOr<Connection> Find(const std::string& name) const;
};

// $TIDETAPE_CONTEXTS, or tidetape/contexts.toml in $XDG_CONFIG_HOME or ~/.config.
std::string ContextsFile();

// No contexts where the file is not there; InvalidArgument, with the path, where it says what it should not.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);

// Replaces the file, for its owner alone. Comments in it are lost.
absl::Status WriteContexts(const Contexts& contexts, const std::string& path);

// A name and a value of a connection, as on the command line and in the file; by reference.
std::map<std::string, std::string*> SettingsOf(Connection& connection);

// Fills what `connection` does not say: from the context that was named, then the environment, then the current context, then the
// default.
absl::Status CompleteConnection(const std::string& context, Connection& connection);

// The commands.
absl::Status ListContexts(const Arguments& arguments, std::ostream& out);
absl::Status SetContext(const Arguments& arguments, std::ostream& out);
absl::Status UseContext(const Arguments& arguments, std::ostream& out);
absl::Status DeleteContext(const Arguments& arguments, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_CONTEXTS_H_
