#include "server/http/page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/text/markup.h"

namespace tidetape::server {
namespace {

// Nothing is loaded from anywhere, nothing runs, and no other page may hold this one.
constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr char kStyle[] = R"(
:root { color-scheme: light dark;
  --back: #fff; --raised: #f5f6f8; --text: #1b1f24; --faint: #59636e; --line: #d5dae0;
  --blue: #1f5fbf; --orange: #b45309; --red: #b42318; --green: #1a7f37 }
@media (prefers-color-scheme: dark) { :root {
  --back: #14171b; --raised: #1e2329; --text: #e4e8ec; --faint: #9aa5b1; --line: #363d45;
  --blue: #7ab0ff; --orange: #f5a84b; --red: #ff8a80; --green: #6bd58a } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; overflow-wrap: anywhere }
a { color: var(--blue) }
header { display: flex; flex-wrap: wrap; gap: .25rem 1rem; align-items: baseline; border-bottom: 1px solid var(--line) }
header h1 { font-size: 1.35rem; margin: 0 0 .5rem; flex: 1 1 auto }
header p, footer { color: var(--faint); margin: 0 0 .5rem }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .5rem }
.note { color: var(--faint); margin: .25rem 0 .5rem }
.state { border: 1px solid; border-radius: 1em; padding: 0 .6em; font-size: .85em; white-space: nowrap }
.good { color: var(--green) } .busy { color: var(--blue) } .warn { color: var(--orange) } .bad { color: var(--red) } .over { color: var(--faint) }
ol.events { list-style: none; margin: 0; padding: 0 }
ol.events li { padding: .25rem 0; border-bottom: 1px solid var(--line) }
ol.events time { color: var(--faint); margin-right: .5rem; font-variant-numeric: tabular-nums; white-space: nowrap }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: .5rem; margin: 0 }
dl div { background: var(--raised); border-radius: .4rem; padding: .4rem .7rem }
dt { color: var(--faint); font-size: .85rem } dd { margin: 0; font-weight: 600 }
dd small, td small { display: block; color: var(--faint); font-weight: 400; font-size: .85rem }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--faint); font-weight: 600; font-size: .85rem } .number { text-align: right }
summary { cursor: pointer; padding: .3rem 0 }
figure { margin: 0 } svg { display: block; max-width: 100%; height: auto } figure.narrow { display: none }
figcaption { color: var(--faint); font-size: .85rem }
svg text { font: 13px system-ui, sans-serif; fill: var(--text) }
svg .grid { stroke: var(--line) } svg .axis { stroke: var(--faint) } svg .limit { stroke: var(--red); stroke-dasharray: 6 4 }
svg polyline { fill: none; stroke-width: 2 } .hull, .predicted { stroke: var(--blue) } .measured { stroke: var(--orange) }
.hull-point { fill: var(--blue) } .measured-point { fill: var(--orange) } svg .now { fill: var(--orange); stroke: var(--text) }
.key { display: inline-block; width: 1.2em; height: 0; border-top: 3px solid; vertical-align: middle; margin: 0 .3em }
.key.predicted { border-color: var(--blue) } .key.measured { border-color: var(--orange) }
@media (max-width: 46rem) {
  figure.wide { display: none } figure.narrow { display: block }
  thead { display: none } table, tbody, tr { display: block }
  tr { background: var(--raised); border-radius: .4rem; padding: .4rem .7rem; margin-bottom: .5rem }
  td { display: flex; gap: 1rem; justify-content: space-between; border: 0; padding: .1rem 0; text-align: right }
  td::before { content: attr(data-label); color: var(--faint); flex: 0 0 auto; text-align: left } }
)";

std::string RefreshLinks(const PageFrame& frame) {
  const std::string before = frame.query.empty() ? "?" : absl::StrCat("?", frame.query, "&amp;");
  if (frame.refresh_seconds == 0) {
    return absl::StrCat("stands still · <a href=\"", before, "refresh=", kRefreshSeconds, "\">load it again every ",
                        kRefreshSeconds, " s</a>");
  }
  return absl::StrCat("loads itself every ", frame.refresh_seconds, " s · <a href=\"", before, "refresh=0\">stop</a>");
}

}  // namespace

HttpResponse MakePage(const PageFrame& frame) {
  HttpResponse response{.content_type = "text/html; charset=utf-8"};
  response.headers = {
      {"Content-Security-Policy", kPolicy}, {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}};
  const std::string refresh =
      frame.refresh_seconds > 0 ? absl::StrCat("<meta http-equiv=\"refresh\" content=\"", frame.refresh_seconds, "\">\n") : "";
  response.body = absl::StrCat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
                               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n", refresh, "<title>",
                               EscapeMarkup(frame.title), "</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<header><h1>",
                               frame.heading, "</h1><p>", EscapeMarkup(frame.updated), " · ", RefreshLinks(frame),
                               "</p></header>\n", frame.body, "</body>\n</html>\n");
  return response;
}

HtmlTable::HtmlTable(std::vector<std::string> header, std::vector<size_t> numbers)
    : header_(std::move(header)), numbers_(std::move(numbers)) {}

void HtmlTable::Add(const std::vector<std::string>& cells) {
  rows_ += "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool number = std::find(numbers_.begin(), numbers_.end(), i) != numbers_.end();
    // One element beside the label, which a narrow screen puts to the left.
    absl::StrAppend(&rows_, "<td", number ? " class=\"number\"" : "", " data-label=\"", EscapeMarkup(header_[i]), "\"><span>",
                    cells[i], "</span></td>");
  }
  rows_ += "</tr>\n";
}

std::string HtmlTable::Markup() const {
  std::string head;
  for (size_t i = 0; i < header_.size(); ++i) {
    const bool number = std::find(numbers_.begin(), numbers_.end(), i) != numbers_.end();
    absl::StrAppend(&head, "<th scope=\"col\"", number ? " class=\"number\"" : "", ">", EscapeMarkup(header_[i]), "</th>");
  }
  return absl::StrCat("<table>\n<thead><tr>", head, "</tr></thead>\n<tbody>\n", rows_, "</tbody>\n</table>\n");
}

std::string Figures(const std::vector<std::pair<std::string, std::string>>& figures) {
  std::string markup = "<dl>\n";
  for (const auto& [name, value] : figures) {
    absl::StrAppend(&markup, "<div><dt>", EscapeMarkup(name), "</dt><dd>", value, "</dd></div>\n");
  }
  return markup + "</dl>\n";
}

std::string Section(const std::string& heading, const std::string& body) {
  return absl::StrCat("<section>\n<h2>", EscapeMarkup(heading), "</h2>\n", body, "</section>\n");
}

}  // namespace tidetape::server
