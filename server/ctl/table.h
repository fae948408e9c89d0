// Text tables: columns aligned, two spaces apart.
#ifndef TIDETAPE_SERVER_CTL_TABLE_H_
#define TIDETAPE_SERVER_CTL_TABLE_H_

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tidetape::ctl {

class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

  // As many cells as the header has.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void Print(std::ostream& out) const {
    std::vector<size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i) {
        line += row[i];
        line.append(widths[i] - row[i].size() + 2, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out << line << "\n";
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_TABLE_H_
