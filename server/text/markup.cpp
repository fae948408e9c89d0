#include "server/text/markup.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace tidetape {

std::string EscapeMarkup(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += absl::ascii_iscntrl(c) && c != '\n' && c != '\t' ? "\xEF\xBF\xBD" : std::string(1, c);
    }
  }
  return escaped;
}

std::string EscapeQuery(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~') {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

}  // namespace tidetape
