#include "server/auth/audit_log.h"

#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/common/log.h"

namespace tidetape::server {
namespace {

// The text as a JSON string. Empty only where it is no UTF-8, which every string of a message that came by gRPC is.
std::string Quoted(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  std::string json;
  return google::protobuf::util::MessageToJsonString(value, &json).ok() ? json : "\"\"";
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, Clock* clock) {
  int descriptor = -1;
  if (!path.empty()) {
    descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) {
      return absl::UnavailableError(absl::StrCat("cannot open the audit log ", path, ": ", std::strerror(errno)));
    }
  }
  return std::unique_ptr<AuditLog>(new AuditLog(descriptor, clock));
}

AuditLog::~AuditLog() {
  if (descriptor_ >= 0) close(descriptor_);
}

void AuditLog::Write(const Entry& entry) {
  const std::string time = absl::FormatTime(absl::RFC3339_full, clock_->Now(), absl::UTCTimeZone());
  std::string line = absl::StrCat("{\"time\":", Quoted(time), ",\"who\":", Quoted(entry.who), ",\"peer\":", Quoted(entry.peer),
                                  ",\"action\":", Quoted(entry.action), ",\"job\":", Quoted(entry.job));
  if (!entry.before.empty()) absl::StrAppend(&line, ",\"before\":", entry.before);
  if (!entry.after.empty()) absl::StrAppend(&line, ",\"after\":", entry.after);
  absl::StrAppend(&line, ",\"outcome\":", Quoted(entry.outcome), "}");
  spdlog::info("audit: {}", line);
  if (descriptor_ < 0) return;
  line += "\n";
  absl::MutexLock lock(&mutex_);
  if (write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size()) || fsync(descriptor_) != 0) {
    spdlog::error("the audit log cannot be written: {}", std::strerror(errno));
  }
}

}  // namespace tidetape::server
