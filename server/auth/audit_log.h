// Who changed what: one JSON object a line, for those who must be able to tell later.
#ifndef TIDETAPE_SERVER_AUTH_AUDIT_LOG_H_
#define TIDETAPE_SERVER_AUTH_AUDIT_LOG_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/common/clock.h"

namespace tidetape::server {

// Thread-safe. Every entry also goes to the server's log.
class AuditLog {
 public:
  struct Entry {
    std::string who;     // the token's name
    std::string peer;    // from where
    std::string action;  // as in "SetConstraints"
    std::string job;
    std::string before;   // JSON
    std::string after;    // JSON
    std::string outcome;  // "OK", or why it was refused
  };

  // Appends to the file; an empty path keeps entries in the server's log alone. `clock` outlives the log.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, Clock* clock);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // On stable storage when it returns. Where the file cannot be written, the server's log has the entry and says so.
  void Write(const Entry& entry);

 private:
  AuditLog(int descriptor, Clock* clock) : descriptor_(descriptor), clock_(clock) {}

  const int descriptor_;  // -1: none
  Clock* const clock_;
  absl::Mutex mutex_;  // one line at a time
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_AUDIT_LOG_H_
