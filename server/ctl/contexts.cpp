#include "server/ctl/contexts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/ctl/closest_name.h"
#include "server/ctl/table.h"

namespace tidetape::ctl {
namespace {

constexpr char kDefaultServer[] = "127.0.0.1:50551";

std::string Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// What "tls-ca" is called in the environment.
std::string VariableOf(const std::string& setting) {
  return absl::StrCat("TIDETAPE_", absl::AsciiStrToUpper(absl::StrReplaceAll(setting, {{"-", "_"}})));
}

void Fill(Connection from, Connection& into) {
  const auto have = SettingsOf(from);
  for (const auto& [name, value] : SettingsOf(into)) {
    if (value->empty()) *value = *have.at(name);
  }
}

Connection FromEnvironment() {
  Connection connection;
  for (const auto& [name, value] : SettingsOf(connection)) *value = Environment(VariableOf(name));
  return connection;
}

// What the reader of the file takes as it stands.
bool CanBeQuoted(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return c == '"' || c == '\\' || c == '#' || absl::ascii_iscntrl(c); });
}

// Names go between brackets, and are typed.
bool GoodName(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

absl::Status Change(const std::function<absl::Status(Contexts&)>& change) {
  const std::string path = ContextsFile();
  auto contexts = ReadContexts(path);
  if (!contexts.ok()) return contexts.status();
  if (absl::Status status = change(*contexts); !status.ok()) return status;
  return WriteContexts(*contexts, path);
}

}  // namespace

std::map<std::string, std::string*> SettingsOf(Connection& connection) {
  net::ClientSecurity& security = connection.security;
  return {{"server", &connection.server},  {"tls-ca", &security.ca_file},       {"tls-cert", &security.certificate_file},
          {"tls-key", &security.key_file}, {"tls-name", &security.server_name}, {"token-file", &security.token_file}};
}

absl::StatusOr<Connection> Contexts::Find(const std::string& name) const {
  if (const auto found = by_name.find(name); found != by_name.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, connection] : by_name) names.push_back(known);
  if (names.empty())
    return absl::NotFoundError(absl::StrCat("there is no context '", name, "'; `tidetapectl context set` makes one"));
  const std::string closest = ClosestName(name, names);
  return absl::NotFoundError(absl::StrCat("there is no context '", name, "'",
                                          closest.empty() ? absl::StrCat("; there are ", absl::StrJoin(names, ", "))
                                                          : absl::StrCat(". Did you mean '", closest, "'?")));
}

std::string ContextsFile() {
  if (const std::string path = Environment("TIDETAPE_CONTEXTS"); !path.empty()) return path;
  const std::string config = Environment("XDG_CONFIG_HOME");
  return absl::StrCat(config.empty() ? Environment("HOME") + "/.config" : config, "/tidetape/contexts.toml");
}

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  Contexts contexts;
  std::ifstream file(path);
  if (!file) return contexts;
  const auto wrong = [&path](const std::string& what) { return absl::InvalidArgumentError(absl::StrCat(path, ": ", what)); };
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    return wrong(error.what());
  }
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") {  // a table begins or ends
      if (item.name == "++" && item.parents.size() == 1) contexts.by_name.try_emplace(item.parents[0]);
      continue;
    }
    if (item.inputs.size() != 1) return wrong(absl::StrCat("'", item.name, "' must be one text"));
    if (item.parents.empty() && item.name == "current") {
      contexts.current = item.inputs[0];
      continue;
    }
    if (item.parents.size() != 1) return wrong(absl::StrCat("'", item.name, "' is in no context; begin one with [NAME]"));
    const auto settings = SettingsOf(contexts.by_name[item.parents[0]]);
    const auto setting = settings.find(item.name);
    if (setting == settings.end()) {
      std::vector<std::string> names;
      for (const auto& [name, value] : settings) names.push_back(name);
      const std::string closest = ClosestName(item.name, names);
      return wrong(absl::StrCat("[", item.parents[0], "] has no setting '", item.name, "'",
                                closest.empty() ? "" : absl::StrCat(". Did you mean '", closest, "'?")));
    }
    *setting->second = item.inputs[0];
  }
  if (!contexts.current.empty() && contexts.by_name.count(contexts.current) == 0) {
    return wrong(absl::StrCat("current is '", contexts.current, "', which is no context here"));
  }
  return contexts;
}

absl::Status WriteContexts(const Contexts& contexts, const std::string& path) {
  std::ostringstream text;
  if (!contexts.current.empty()) text << "current = \"" << contexts.current << "\"\n";
  for (auto [name, connection] : contexts.by_name) {
    text << "\n[" << name << "]\n";
    for (const auto& [setting, value] : SettingsOf(connection)) {
      if (!CanBeQuoted(*value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", setting, " of context '", name, "' has a quote, a backslash or a # in it"));
      }
      if (!value->empty()) text << setting << " = \"" << *value << "\"\n";
    }
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string unfinished = path + ".part";
  std::ofstream(unfinished) << text.str();
  if (chmod(unfinished.c_str(), 0600) != 0 || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

absl::Status CompleteConnection(const std::string& context, Connection& connection) {
  const auto contexts = ReadContexts(ContextsFile());
  if (!contexts.ok()) return contexts.status();
  const std::string named = context.empty() ? Environment("TIDETAPE_CONTEXT") : context;
  if (!named.empty()) {
    const auto found = contexts->Find(named);
    if (!found.ok()) return found.status();
    Fill(*found, connection);
  } else {
    Fill(FromEnvironment(), connection);
    if (!contexts->current.empty()) Fill(contexts->by_name.at(contexts->current), connection);
  }
  if (connection.server.empty()) connection.server = kDefaultServer;
  return absl::OkStatus();
}

absl::Status ListContexts(const Arguments& arguments, std::ostream& out) {
  const auto contexts = ReadContexts(ContextsFile());
  if (!contexts.ok()) return contexts.status();
  if (arguments.output.json()) {
    std::string json;
    for (auto [name, connection] : contexts->by_name) {
      absl::StrAppend(&json, json.empty() ? "" : ",", "{\"name\":", JsonString(name),
                      ",\"current\":", name == contexts->current ? "true" : "false");
      for (const auto& [setting, value] : SettingsOf(connection)) {
        absl::StrAppend(&json, ",", JsonString(absl::StrReplaceAll(setting, {{"-", "_"}})), ":", JsonString(*value));
      }
      json += "}";
    }
    out << "{\"contexts\":[" << json << "]}\n";
    return absl::OkStatus();
  }
  if (contexts->by_name.empty()) {
    out << "no contexts; `tidetapectl context set NAME --server HOST:PORT` makes one\n";
    return absl::OkStatus();
  }
  Table table({"", "NAME", "SERVER", "TLS", "TOKEN FILE"});
  for (const auto& [name, connection] : contexts->by_name) {
    const net::ClientSecurity& security = connection.security;
    table.Add({name == contexts->current ? "*" : "", name, connection.server.empty() ? "-" : connection.server,
               security.ca_file.empty()            ? "no"
               : security.certificate_file.empty() ? "yes"
                                                   : "mutual",
               security.token_file.empty() ? "-" : security.token_file});
  }
  table.Print(out);
  return absl::OkStatus();
}

absl::Status SetContext(const Arguments& arguments, std::ostream& out) {
  if (!GoodName(arguments.name)) {
    return absl::InvalidArgumentError(absl::StrCat("'", arguments.name, "': a context's name has letters, digits, - and _"));
  }
  const absl::Status status = Change([&arguments](Contexts& contexts) {
    Connection connection = arguments.connection;
    net::ClientSecurity& security = connection.security;
    // A context is used from any folder.
    for (std::string* file : {&security.ca_file, &security.certificate_file, &security.key_file, &security.token_file}) {
      if (!file->empty()) *file = std::filesystem::absolute(*file).lexically_normal();
    }
    Fill(contexts.by_name[arguments.name], connection);
    contexts.by_name[arguments.name] = connection;
    if (contexts.current.empty()) contexts.current = arguments.name;
    return absl::OkStatus();
  });
  if (status.ok()) out << "set " << arguments.name << " in " << ContextsFile() << "\n";
  return status;
}

absl::Status UseContext(const Arguments& arguments, std::ostream& out) {
  const absl::Status status = Change([&arguments](Contexts& contexts) {
    contexts.current = arguments.name;
    return contexts.Find(arguments.name).status();
  });
  if (status.ok()) out << "now in use: " << arguments.name << "\n";
  return status;
}

absl::Status DeleteContext(const Arguments& arguments, std::ostream& out) {
  const absl::Status status = Change([&arguments](Contexts& contexts) {
    if (absl::Status found = contexts.Find(arguments.name).status(); !found.ok()) return found;
    contexts.by_name.erase(arguments.name);
    if (contexts.current == arguments.name) contexts.current.clear();
    return absl::OkStatus();
  });
  if (status.ok()) out << "deleted " << arguments.name << "\n";
  return status;
}

}  // namespace tidetape::ctl
