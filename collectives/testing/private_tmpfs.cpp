#include "collectives/testing/private_tmpfs.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {
namespace {

bool WriteFile(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

}  // namespace

absl::Status MountPrivateTmpfs(const std::string& folder, uint64_t bytes) {
  const uid_t user = geteuid();
  if (user != 0) {
    if (unshare(CLONE_NEWUSER) != 0) return absl::PermissionDeniedError("this test needs root, or user namespaces for all");
    WriteFile("/proc/self/setgroups", "deny");
    if (!WriteFile("/proc/self/uid_map", absl::StrCat(user, " ", user, " 1")))
      return absl::PermissionDeniedError("cannot map the user");
  }
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", folder.c_str(), "tmpfs", 0, absl::StrCat("size=", bytes, ",mode=1777").c_str()) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("cannot mount a tmpfs: ", std::strerror(errno), "; this test needs root"));
  }
  return absl::OkStatus();
}

uint64_t BytesTaken(const std::string& folder) {
  struct statvfs space = {};
  statvfs(folder.c_str(), &space);
  return static_cast<uint64_t>(space.f_blocks - space.f_bfree) * space.f_frsize;
}

}  // namespace tidetape::collectives
