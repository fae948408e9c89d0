// A store in a folder that all ranks see: one file a key. For tests and for programs without a store of their own.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_FILE_STORE_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_FILE_STORE_H_

#include <string>

#include "collectives/transports/rendezvous/store.h"

namespace tidetape::collectives {

// The folder must exist; whoever can read it can join the group, so only its user should. The caller removes it.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override;
  absl::StatusOr<std::string> Wait(absl::string_view key, absl::Time deadline) override;

 private:
  std::string PathOf(absl::string_view key) const;

  const std::string folder_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_RENDEZVOUS_FILE_STORE_H_
