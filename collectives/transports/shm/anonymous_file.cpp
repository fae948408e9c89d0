#include "collectives/transports/shm/anonymous_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

absl::StatusOr<UniqueFd> MakeAnonymousFile(const std::string& folder, uint64_t bytes, const std::vector<ByteRange>& reserved,
                                           const std::string& purpose) {
  UniqueFd file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  if (!file) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make a file without a name in ", folder, " for ", purpose, ": ",
                                                      std::strerror(errno), "; it must be a tmpfs that this user may write"));
  }
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot size a file of ", bytes, " bytes in ", folder, ": ", std::strerror(errno)));
  }
  for (const ByteRange& range : reserved) {
    if (range.bytes == 0) continue;
    int result = 0;
    do {
      result = fallocate(file.get(), 0, static_cast<off_t>(range.offset), static_cast<off_t>(range.bytes));
    } while (result != 0 && errno == EINTR);
    if (result == 0) continue;
    const int error = errno;
    struct statvfs space = {};
    statvfs(folder.c_str(), &space);
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve ", range.bytes, " bytes of shared memory for ", purpose, " in ", folder, ", where ",
                     static_cast<uint64_t>(space.f_bavail) * space.f_frsize, " of ",
                     static_cast<uint64_t>(space.f_blocks) * space.f_frsize, " are free: ", std::strerror(error),
                     "; free some, or enlarge it (mount -o remount,size=..., or the container's shm size)"));
  }
  return file;
}

}  // namespace tidetape::collectives
