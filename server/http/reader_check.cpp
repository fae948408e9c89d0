#include "server/http/reader_check.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/auth/rights.h"

namespace tidetape::server {
namespace {

constexpr char kBasic[] = "basic ";

// What comes as user and password is the same as a token, which is the password.
std::optional<std::string> AsBearer(const std::optional<std::string>& authorization) {
  if (!authorization.has_value() || !absl::StartsWithIgnoreCase(*authorization, kBasic)) return authorization;
  std::string user_and_password;
  if (!absl::Base64Unescape(authorization->substr(sizeof(kBasic) - 1), &user_and_password)) return authorization;
  const size_t colon = user_and_password.find(':');
  if (colon == std::string::npos) return authorization;
  return absl::StrCat("Bearer ", user_and_password.substr(colon + 1));
}

}  // namespace

absl::Status CheckReader(const Authenticator& authenticator, const HttpRequest& request) {
  const absl::StatusOr<Principal> who = authenticator.IdentifyHeader(AsBearer(request.authorization), "anyone");
  return who.ok() ? CheckRight(*who, Right::kList, "") : who.status();
}

HttpResponse Refuse(const absl::Status& status, const std::string& challenge) {
  HttpResponse response{.status = absl::IsUnauthenticated(status) ? 401 : 403, .body = absl::StrCat(status.message(), "\n")};
  if (response.status == 401) response.headers["WWW-Authenticate"] = challenge;
  return response;
}

}  // namespace tidetape::server
