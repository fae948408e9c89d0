// The servers that an agent may go to, and which one is next.
//
// A server that stands by names the leader, and the agent goes there; otherwise it asks the named servers in turn. A round ends
// when each was asked once and every hint was followed; then it is time for a pause.
#ifndef TIDETAPE_AGENT_LINK_SERVER_LIST_H_
#define TIDETAPE_AGENT_LINK_SERVER_LIST_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace tidetape::link {

// Not thread-safe.
class ServerList {
 public:
  // "host:port", or several with commas between; see ComplaintAboutServers.
  explicit ServerList(const std::string& servers);

  // Whom to ask now.
  const std::string& current() const { return current_; }

  bool several() const { return servers_.size() > 1; }

  // The current server answered well until now, so all may be asked again.
  void BeginRound();

  // The current server did not answer, or named `leader` (empty: none). True where current() has not been asked in this round;
  // false where a new round begins with it.
  bool Next(const std::string& leader);

 private:
  std::vector<std::string> servers_;
  std::string current_;
  size_t position_ = 0;          // of the named server that was asked last
  std::set<std::string> asked_;  // in this round
};

// Empty where `servers` is "host:port" ("[v6]:port") or several of them with commas between; otherwise what is wrong with it.
std::string ComplaintAboutServers(const std::string& servers);

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_SERVER_LIST_H_
