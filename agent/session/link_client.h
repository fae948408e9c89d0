// Opens libtt_agent.so by path and finds its functions.
#ifndef TIDETAPE_AGENT_SESSION_LINK_CLIENT_H_
#define TIDETAPE_AGENT_SESSION_LINK_CLIENT_H_

#include <memory>
#include <string>

#include "agent/link/tt_link.h"

namespace tidetape::agent {

// The functions of tt_link.h. The library is never closed: its threads may run until the process ends.
struct LinkLibrary {
  decltype(&tt_link_open) open = nullptr;
  decltype(&tt_link_close) close = nullptr;
  decltype(&tt_link_put_tape) put_tape = nullptr;
  decltype(&tt_link_report_step) report_step = nullptr;
  decltype(&tt_link_plan_activated) plan_activated = nullptr;
  decltype(&tt_link_take_plan) take_plan = nullptr;
  decltype(&tt_link_release_plan) release_plan = nullptr;
  decltype(&tt_link_set_memory_limit) set_memory_limit = nullptr;
  decltype(&tt_link_state) state = nullptr;
};

// Throws std::runtime_error with the path and the reason.
const LinkLibrary& LoadLinkLibrary(const std::string& path);

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_LINK_CLIENT_H_
