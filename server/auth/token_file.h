// The token table of a file, read again when the file changes.
#ifndef TIDETAPE_SERVER_AUTH_TOKEN_FILE_H_
#define TIDETAPE_SERVER_AUTH_TOKEN_FILE_H_

#include <sys/stat.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/auth/token_table.h"
#include "server/common/clock.h"

namespace tidetape::server {

// Thread-safe.
class TokenFile {
 public:
  // The file is looked at when the table is asked for, at most this often.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Errors are those of reading and of TokenTable::Parse, with the file's name. `clock` outlives the file.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path, Clock* clock);

  // The newest table. A file that has become unreadable leaves the last one in force, and says so in the log.
  std::shared_ptr<const TokenTable> table();

 private:
  TokenFile(std::string path, Clock* clock) : path_(std::move(path)), clock_(clock) {}

  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Clock* const clock_;
  absl::Mutex mutex_;
  std::shared_ptr<const TokenTable> table_ ABSL_GUARDED_BY(mutex_);
  struct stat seen_ ABSL_GUARDED_BY(mutex_) = {};  // of the file that was read last
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_TOKEN_FILE_H_
