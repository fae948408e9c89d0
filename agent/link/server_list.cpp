#include "agent/link/server_list.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidetape::link {
namespace {

std::string ComplaintAboutAddress(const std::string& address) {
  std::string advice = absl::StrCat("planner = '", address, "': use \"local\", \"host:port\" or several with commas between");
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return advice;
  int32_t port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) return advice;
  const std::string host = address.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (host.find(':') != std::string::npos && !bracketed) return absl::StrCat(advice, "; put an IPv6 address in brackets");
  if (host.find('/') != std::string::npos) return advice;
  return "";
}

}  // namespace

ServerList::ServerList(const std::string& servers) : servers_(absl::StrSplit(servers, ',')), current_(servers_.front()) {
  BeginRound();
}

void ServerList::BeginRound() { asked_ = {current_}; }

bool ServerList::Next(const std::string& leader) {
  if (!leader.empty() && asked_.insert(leader).second) {
    current_ = leader;
    return true;
  }
  for (size_t i = 0; i < servers_.size(); ++i) {
    position_ = (position_ + 1) % servers_.size();
    if (!asked_.insert(servers_[position_]).second) continue;
    current_ = servers_[position_];
    return true;
  }
  position_ = (position_ + 1) % servers_.size();
  current_ = servers_[position_];
  BeginRound();
  return false;
}

std::string ComplaintAboutServers(const std::string& servers) {
  for (const std::string& server : std::vector<std::string>(absl::StrSplit(servers, ','))) {
    if (std::string complaint = ComplaintAboutAddress(server); !complaint.empty()) return complaint;
  }
  return "";
}

}  // namespace tidetape::link
