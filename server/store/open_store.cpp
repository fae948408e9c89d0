#include "server/store/open_store.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/common/log.h"
#include "server/store/memory_store.h"
#include "server/store/sqlite_store.h"

namespace tidetape::server {
namespace {

constexpr char kFile[] = "server.db";
constexpr char kSqlitePrefix[] = "sqlite:";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::unique_ptr<Store>> OpenSqlite(const std::string& path, Clock* clock, StoreObserver* observer) {
  auto store = OpenSqliteStore(path, clock, observer);
  if (store.ok()) spdlog::info("store in {}", path);
  return store;
}

}  // namespace

absl::StatusOr<std::string> DefaultStorePath() {
  // systemd may name several, with colons between.
  const std::string states = Environment("STATE_DIRECTORY");
  if (!states.empty()) return absl::StrCat(states.substr(0, states.find(':')), "/", kFile);
  if (const std::string state = Environment("XDG_STATE_HOME"); !state.empty()) return absl::StrCat(state, "/tidetape/", kFile);
  if (const std::string home = Environment("HOME"); !home.empty()) return absl::StrCat(home, "/.local/state/tidetape/", kFile);
  return absl::InvalidArgumentError("there is no HOME to keep the store in; use --store=sqlite:PATH or --store=memory");
}

bool IsPostgres(const std::string& name) {
  return absl::StartsWith(name, "postgresql://") || absl::StartsWith(name, "postgres://") || absl::StrContains(name, "dbname=");
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& name, Clock* clock, StoreObserver* observer) {
  if (name == "memory") return std::make_unique<MemoryStore>();
  if (name == "sqlite") {
    const auto path = DefaultStorePath();
    if (!path.ok()) return path.status();
    return OpenSqlite(*path, clock, observer);
  }
  const std::string path = absl::StartsWith(name, kSqlitePrefix) ? name.substr(sizeof(kSqlitePrefix) - 1) : "";
  if (!path.empty()) return OpenSqlite(path, clock, observer);
  return absl::InvalidArgumentError(
      absl::StrCat("--store=", name, ": use sqlite, sqlite:PATH, postgresql://USER@HOST/DATABASE or memory"));
}

}  // namespace tidetape::server
