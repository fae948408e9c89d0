// Text from elsewhere, made harmless in HTML, SVG and links.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_TEXT_MARKUP_H_
#define TIDETAPE_SERVER_TEXT_MARKUP_H_

#include <string>

namespace tidetape {

// As text or in a quoted attribute. Control characters become U+FFFD, since no markup may hold them.
std::string EscapeMarkup(const std::string& text);

// As a value in a link's query.
std::string EscapeQuery(const std::string& text);

}  // namespace tidetape

#endif  // TIDETAPE_SERVER_TEXT_MARKUP_H_
