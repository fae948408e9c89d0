// The file of a store that only one server may use: on a disk of this machine, and locked.
#ifndef TIDETAPE_SERVER_STORE_LOCAL_FILE_H_
#define TIDETAPE_SERVER_STORE_LOCAL_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidetape::server {

// Name of a network file system by the type that statfs(2) gives, as in "NFS"; empty for those of a machine's own disks.
std::string NetworkFileSystem(int64_t type);

// The type of the file system that holds the folder; tests replace it.
using FileSystemType = std::function<absl::StatusOr<int64_t>(const std::string& folder)>;
absl::StatusOr<int64_t> FileSystemTypeOf(const std::string& folder);

// Makes the folder of `path`, for this user only, where it is not there. FailedPrecondition where it lies on a network file system:
// locks and synchronisation cannot be relied upon there, and a database is lost sooner or later.
absl::Status PrepareFolder(const std::string& path, const FileSystemType& type_of);

// Held until it is destroyed, or the process ends in whatever way.
class FileLock {
 public:
  // FailedPrecondition, with the holder's process id, where another process has it.
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_LOCAL_FILE_H_
