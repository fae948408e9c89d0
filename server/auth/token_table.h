// The tokens that a server accepts, as hashes.
#ifndef TIDETAPE_SERVER_AUTH_TOKEN_TABLE_H_
#define TIDETAPE_SERVER_AUTH_TOKEN_TABLE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/auth/rights.h"

namespace tidetape::server {

// Immutable, so safe from any thread.
class TokenTable {
 public:
  // One token a line: NAME ROLE SHA256 [JOBS]. NAME is for the logs; ROLE is agent, reader or operator; SHA256 is the hash of the
  // token, 64 hexadecimal digits; JOBS, a glob, is an agent's and required there. Empty lines and what follows a # are skipped.
  // InvalidArgument names the line.
  static absl::StatusOr<TokenTable> Parse(const std::string& text);

  // Whose token it is. Takes as long for a wrong token as for a right one.
  std::optional<Principal> Find(const std::string& token) const;

  size_t size() const { return entries_.size(); }

 private:
  using Hash = std::array<uint8_t, 32>;
  struct Entry {
    Principal principal;
    Hash hash{};
  };

  std::vector<Entry> entries_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_AUTH_TOKEN_TABLE_H_
