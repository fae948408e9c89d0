#include "collectives/transports/rendezvous/file_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "collectives/transports/common/unique_fd.h"

namespace tidetape::collectives {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(20);

absl::Status FileError(absl::string_view what, absl::string_view path) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

}  // namespace

std::string FileStore::PathOf(absl::string_view key) const {
  return absl::StrCat(folder_, "/", absl::StrReplaceAll(key, {{"/", "%"}}));
}

absl::Status FileStore::Set(absl::string_view key, absl::string_view value) {
  // Written aside and renamed, so that a reader sees all of it or nothing.
  const std::string path = PathOf(key);
  const std::string aside = absl::StrCat(path, "~", getpid());
  UniqueFd file(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return FileError("create", aside);
  while (!value.empty()) {
    const ssize_t n = write(file.get(), value.data(), value.size());
    if (n < 0) return FileError("write", aside);
    value.remove_prefix(static_cast<size_t>(n));
  }
  if (std::rename(aside.c_str(), path.c_str()) != 0) return FileError("rename to", path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> FileStore::Wait(absl::string_view key, absl::Time deadline) {
  const std::string path = PathOf(key);
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    if (UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC)); file) {
      std::string value;
      char buffer[4096];
      ssize_t n = 0;
      while ((n = read(file.get(), buffer, sizeof(buffer))) > 0) value.append(buffer, static_cast<size_t>(n));
      if (n < 0) return FileError("read", path);
      return value;
    }
    if (errno != ENOENT) return FileError("open", path);
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(absl::StrCat("nobody has set ", key));
    absl::SleepFor(std::min(pause, left));
  }
}

}  // namespace tidetape::collectives
