// Agents' words, fit for one line of the log and of the list of events: nobody forges a line with a line's end of their own.
#ifndef TIDETAPE_SERVER_TEXT_ONE_LINE_H_
#define TIDETAPE_SERVER_TEXT_ONE_LINE_H_

#include <algorithm>
#include <string>

namespace tidetape::server {

// Control characters become spaces.
inline std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
  return text;
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TEXT_ONE_LINE_H_
