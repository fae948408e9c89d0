#include "server/auth/token_table.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidetape::server {
namespace {

std::optional<Role> ParseRole(const std::string& name) {
  if (name == "agent") return Role::kAgent;
  if (name == "reader") return Role::kReader;
  if (name == "operator") return Role::kOperator;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(const std::string& text) {
  TokenTable table;
  int number = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    ++number;
    const std::string content = line.substr(0, line.find('#'));
    const std::vector<std::string> fields = absl::StrSplit(content, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (fields.empty()) continue;
    const auto error = [number](const std::string& what) {
      // Never the line itself: a token that was written down in place of its hash must not get into a log.
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what, "; a line is NAME ROLE SHA256 [JOBS]"));
    };
    if (fields.size() < 3 || fields.size() > 4) return error(absl::StrCat(fields.size(), " fields"));
    const std::optional<Role> role = ParseRole(fields[1]);
    if (!role.has_value()) return error("the role is not agent, reader or operator");
    const std::string& hash = fields[2];
    const bool hexadecimal = std::all_of(hash.begin(), hash.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
    if (hash.size() != 64 || !hexadecimal) return error("the hash is not of 64 hexadecimal digits");
    if (*role == Role::kAgent && fields.size() != 4) return error("an agent needs the glob of its jobs");
    if (*role != Role::kAgent && fields.size() == 4) return error("only an agent has a glob of jobs");
    Entry& entry = table.entries_.emplace_back();
    entry.principal = {fields[0], *role, fields.size() == 4 ? fields[3] : "*"};
    const std::string bytes = absl::HexStringToBytes(hash);
    std::copy(bytes.begin(), bytes.end(), entry.hash.begin());
  }
  return table;
}

std::optional<Principal> TokenTable::Find(const std::string& token) const {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  const Entry* found = nullptr;
  // To the end in any case.
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(hash.data(), entry.hash.data(), hash.size()) == 0) found = &entry;
  }
  if (found == nullptr) return std::nullopt;
  return found->principal;
}

}  // namespace tidetape::server
