#include "server/auth/token_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/common/log.h"

namespace tidetape::server {
namespace {

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path, Clock* clock) {
  std::unique_ptr<TokenFile> file(new TokenFile(path, clock));
  absl::MutexLock lock(&file->mutex_);
  if (absl::Status status = file->Read(); !status.ok()) return status;
  if (file->table_->size() == 0) spdlog::warn("the token file {} has no tokens: nobody gets in", path);
  return file;
}

absl::Status TokenFile::Read() {
  looked_ = clock_->Now();
  struct stat now {};
  if (stat(path_.c_str(), &now) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot read the token file ", path_, ": ", std::strerror(errno)));
  }
  if (table_ != nullptr && SameFile(now, seen_)) return absl::OkStatus();
  seen_ = now;
  std::ifstream stream(path_);
  if (!stream.is_open()) return absl::NotFoundError(absl::StrCat("cannot read the token file ", path_));
  auto table = TokenTable::Parse({std::istreambuf_iterator<char>(stream), {}});
  if (!table.ok()) return absl::Status(table.status().code(), absl::StrCat(path_, ", ", table.status().message()));
  table_ = std::make_shared<const TokenTable>(*std::move(table));
  spdlog::info("{} tokens from {}", table_->size(), path_);
  return absl::OkStatus();
}

std::shared_ptr<const TokenTable> TokenFile::table() {
  absl::MutexLock lock(&mutex_);
  // Also where the clock was set back.
  const absl::Duration since = clock_->Now() - looked_;
  if (since >= kInterval || since < absl::ZeroDuration()) {
    if (absl::Status status = Read(); !status.ok()) {
      spdlog::error("{}; the tokens read before stay in force", std::string(status.message()));
    }
  }
  return table_;
}

}  // namespace tidetape::server
