#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "collectives/layout.h"

namespace tidetape::collectives {
namespace {

struct Field {
  absl::string_view what;
  absl::string_view value;
};

std::vector<Field> Fields(absl::string_view description) {
  std::vector<Field> fields;
  for (absl::string_view line : absl::StrSplit(description, '\n', absl::SkipEmpty())) {
    const size_t tab = line.find('\t');
    if (tab == absl::string_view::npos) {
      fields.push_back({line, ""});
    } else {
      fields.push_back({line.substr(0, tab), line.substr(tab + 1)});
    }
  }
  return fields;
}

// Names of what the field at `position` belongs to: a mesh, or a unit and perhaps a parameter.
std::string NamesAt(const std::vector<Field>& fields, size_t position) {
  std::string unit, parameter;
  for (size_t i = 0; i <= position; ++i) {
    if (!absl::EndsWith(fields[i].what, "name")) continue;
    const bool is_parameter = fields[i].what.find("parameter ") != absl::string_view::npos;
    (is_parameter ? parameter : unit) = absl::StrCat("'", fields[i].value, "'");
    if (!is_parameter) parameter.clear();
  }
  const bool in_parameter = fields[position].what.find("parameter ") != absl::string_view::npos;
  return in_parameter ? absl::StrCat(unit, " ", parameter) : unit;
}

}  // namespace

absl::Status CompareLayouts(const std::string& own, const std::string& other, int32_t own_rank, int32_t other_rank) {
  if (own == other) return absl::OkStatus();
  const std::vector<Field> mine = Fields(own), theirs = Fields(other);
  for (size_t i = 0; i < mine.size() && i < theirs.size(); ++i) {
    if (mine[i].what != theirs[i].what) {
      return absl::FailedPreconditionError(absl::StrCat("layouts differ: rank ", own_rank, " has ", mine[i].what, " '",
                                                        mine[i].value, "' where rank ", other_rank, " has ", theirs[i].what, " '",
                                                        theirs[i].value, "', after ", NamesAt(mine, i == 0 ? 0 : i - 1),
                                                        "; all ranks must build the same model with the same sharding"));
    }
    if (mine[i].value != theirs[i].value) {
      return absl::FailedPreconditionError(absl::StrCat(
          "layouts differ at ", mine[i].what, " (", NamesAt(mine, i), "): '", mine[i].value, "' on rank ", own_rank, ", '",
          theirs[i].value, "' on rank ", other_rank, "; all ranks must build the same model with the same sharding"));
    }
  }
  return absl::FailedPreconditionError(absl::StrCat("layouts differ: the description of rank ", own_rank, " has ", mine.size(),
                                                    " fields, that of rank ", other_rank, " has ", theirs.size()));
}

}  // namespace tidetape::collectives
