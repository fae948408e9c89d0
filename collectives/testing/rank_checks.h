// Checks inside a rank's process, where gtest's have no effect: they return from the body with a status.
#ifndef TIDETAPE_COLLECTIVES_TESTING_RANK_CHECKS_H_
#define TIDETAPE_COLLECTIVES_TESTING_RANK_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidetape::collectives {

// A failure of a rank's body, with its place.
inline absl::Status ContractFailure(const char* file, int line, const std::string& what) {
  return absl::InternalError(absl::StrCat(file, ":", line, ": ", what));
}

#define CONTRACT_OK(expression)                                                                        \
  do {                                                                                                 \
    if (const absl::Status& contract_status = (expression); !contract_status.ok()) {                   \
      return ::tidetape::collectives::ContractFailure(__FILE__, __LINE__, contract_status.ToString()); \
    }                                                                                                  \
  } while (false)

#define CONTRACT_EXPECT(condition)                                                                                \
  do {                                                                                                            \
    if (!(condition)) return ::tidetape::collectives::ContractFailure(__FILE__, __LINE__, "not so: " #condition); \
  } while (false)

// That the status has this code and that its message has this text.
#define CONTRACT_ERROR(expression, expected_code, text)                                                                           \
  do {                                                                                                                            \
    const absl::Status& contract_status = (expression);                                                                           \
    if (contract_status.code() != (expected_code) || contract_status.message().find(text) == absl::string_view::npos) {           \
      return ::tidetape::collectives::ContractFailure(__FILE__, __LINE__,                                                         \
                                                      "wanted \"" + std::string(text) + "\", got " + contract_status.ToString()); \
    }                                                                                                                             \
  } while (false)

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TESTING_RANK_CHECKS_H_
