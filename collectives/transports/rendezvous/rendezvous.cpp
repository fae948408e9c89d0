#include "collectives/transports/rendezvous/rendezvous.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidetape::collectives {
namespace {

// Raised with every change of what ranks send each other.
constexpr int kProtocolVersion = 1;

// A record is lines of "name value", values escaped. The fields that must be equal on all ranks come first, under the names that
// errors use.
using Fields = std::vector<std::pair<std::string, std::string>>;

Fields CommonFields(const GroupOptions& options) {
  return {{"protocol version", absl::StrCat(kProtocolVersion)},
          {"group size", absl::StrCat(options.size)},
          {"signal count", absl::StrCat(options.signals)},
          {"arena size", absl::StrCat(options.arena_bytes)},
          {"shared region", absl::StrCat(options.shared_region.offset, "+", options.shared_region.bytes)},
          {"layout hash", options.layout_hash}};
}

std::string Encode(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) absl::StrAppend(&text, name, "\t", absl::CEscape(value), "\n");
  return text;
}

Fields Decode(absl::string_view text) {
  Fields fields;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits('\t', 1));
    std::string value;
    absl::CUnescape(parts.second, &value);
    fields.emplace_back(parts.first, std::move(value));
  }
  return fields;
}

std::string ValueOf(const Fields& fields, absl::string_view name) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; });
  return found == fields.end() ? "" : found->second;
}

std::string MemberKey(const GroupOptions& options, int rank) { return absl::StrCat(options.name, "/member/", rank); }

Token TokenFromText(absl::string_view text) {
  Token token = {};
  std::copy_n(text.begin(), std::min(text.size(), token.size()), token.begin());
  return token;
}

absl::StatusOr<Token> AgreeOnToken(Store& store, const GroupOptions& options, absl::Time deadline) {
  if (!options.token.empty()) return TokenFromText(options.token);
  const std::string key = options.name + "/token";
  if (options.rank == 0) {
    Token token;
    if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
      return absl::InternalError("no random bytes");
    const absl::string_view text(reinterpret_cast<const char*>(token.data()), token.size());
    if (absl::Status status = store.Set(key, text); !status.ok()) return status;
    return token;
  }
  absl::StatusOr<std::string> text = store.Wait(key, deadline);
  if (text.status().code() == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError("rank 0 has not come to the rendezvous before the deadline");
  }
  if (!text.ok()) return text.status();
  return TokenFromText(*text);
}

absl::Status Compare(const Fields& first, const Fields& other, int rank) {
  for (const auto& [name, value] : first) {
    if (name == "end of common fields") break;
    if (const std::string theirs = ValueOf(other, name); theirs != value) {
      return absl::FailedPreconditionError(absl::StrCat("the ranks do not mean the same group: rank ", rank, " has ", name, " ",
                                                        theirs, ", rank 0 has ", value,
                                                        "; start all ranks with the same model, mesh and release"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateOptions(const GroupOptions& options) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const SharedRegion& shared = options.shared_region;
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " is not in a group of ", options.size));
  }
  if (options.signals < 1 || options.signals > 65536) return absl::InvalidArgumentError("1 to 65536 signal indices, please");
  if (options.arena_bytes == 0 || options.arena_bytes > (uint64_t{1} << 46)) {
    return absl::InvalidArgumentError(absl::StrCat("an arena of ", options.arena_bytes, " bytes cannot be mapped"));
  }
  if (shared.offset % page != 0 || shared.bytes % page != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the shared region must start and end at multiples of ", page, " bytes"));
  }
  if (shared.offset > options.arena_bytes || shared.bytes > options.arena_bytes - shared.offset) {
    return absl::InvalidArgumentError("the shared region must lie in the arena");
  }
  return absl::OkStatus();
}

bool SameToken(const Token& a, const Token& b) {
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

absl::StatusOr<std::string> HostId() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network = {};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0)
    return absl::FailedPreconditionError("cannot read /proc to name this host");
  return absl::StrCat(boot, "/", network.st_ino);
}

absl::StatusOr<Roster> Meet(Store& store, const GroupOptions& options, const Member& self, absl::Time deadline) {
  Fields record = CommonFields(options);
  record.emplace_back("end of common fields", "");
  record.emplace_back("host", self.host_id);
  record.emplace_back("shm", self.shm_address);
  record.emplace_back("tcp", self.tcp_address);
  if (absl::Status status = store.Set(MemberKey(options, options.rank), Encode(record)); !status.ok()) return status;
  Roster roster;
  Fields first;
  for (int rank = 0; rank < options.size; ++rank) {
    absl::StatusOr<std::string> text = store.Wait(MemberKey(options, rank), deadline);
    if (text.status().code() == absl::StatusCode::kDeadlineExceeded) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " has not come to the rendezvous before the deadline"));
    }
    if (!text.ok()) return text.status();
    const Fields fields = Decode(*text);
    if (const std::string reason = ValueOf(fields, "declined"); !reason.empty()) {
      return absl::UnavailableError(absl::StrCat("rank ", rank, " cannot take part: ", reason));
    }
    if (rank == 0) first = fields;
    if (absl::Status status = Compare(first, fields, rank); !status.ok()) return status;
    roster.members.push_back({ValueOf(fields, "host"), ValueOf(fields, "shm"), ValueOf(fields, "tcp")});
  }
  absl::StatusOr<Token> token = AgreeOnToken(store, options, deadline);
  if (!token.ok()) return token.status();
  roster.token = *token;
  return roster;
}

void Decline(Store& store, const GroupOptions& options, const absl::Status& reason) {
  // Where the store fails, too, the others find out at their deadline.
  store.Set(MemberKey(options, options.rank), Encode({{"declined", reason.ToString()}})).IgnoreError();
}

}  // namespace tidetape::collectives
