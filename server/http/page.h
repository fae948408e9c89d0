// The frame of the status pages: one document without scripts or external assets, for wide and narrow screens, light and dark.
#ifndef TIDETAPE_SERVER_HTTP_PAGE_H_
#define TIDETAPE_SERVER_HTTP_PAGE_H_

#include <string>
#include <utility>
#include <vector>

#include "server/http/http_server.h"

namespace tidetape::server {

// How often a page loads itself again, in seconds; 0: never.
inline constexpr int kRefreshSeconds = 10;

struct PageFrame {
  std::string title;    // text
  std::string heading;  // markup
  std::string body;     // markup
  std::string query;    // of this page without its refresh, as in "name=train-1"; escaped
  int refresh_seconds = kRefreshSeconds;
  std::string updated;  // when the page was made, as text
};

HttpResponse MakePage(const PageFrame& frame);

// A table whose rows become cards on a narrow screen. Cells are markup; as many as the header has.
class HtmlTable {
 public:
  // `numbers`: columns whose cells stand to the right.
  explicit HtmlTable(std::vector<std::string> header, std::vector<size_t> numbers = {});
  void Add(const std::vector<std::string>& cells);
  std::string Markup() const;
  bool empty() const { return rows_.empty(); }

 private:
  const std::vector<std::string> header_;
  const std::vector<size_t> numbers_;
  std::string rows_;
};

// Names with figures, in as many columns as the screen has room for. Values are markup.
std::string Figures(const std::vector<std::pair<std::string, std::string>>& figures);

// A heading with what belongs below it.
std::string Section(const std::string& heading, const std::string& body);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_PAGE_H_
