#include "server/store/local_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tidetape::server {

std::string NetworkFileSystem(int64_t type) {
  // Types as statfs(2) lists them, and those of cluster file systems as their own sources do.
  static const auto* names = new std::map<int64_t, std::string>{
      {0x6969, "NFS"},      {0x517B, "SMB"},        {0xFF534D42, "CIFS"},  {0xFE534D42, "SMB2"},
      {0x5346414F, "AFS"},  {0x73757245, "Coda"},   {0x00C36400, "Ceph"},  {0x0BD00BD0, "Lustre"},
      {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"}, {0x01021997, "9P"},    {0x7461636F, "OCFS2"},
      {0x01161970, "GFS2"}, {0x65735546, "FUSE"},   {0xAAD7AAEA, "PanFS"}, {0x20030528, "OrangeFS"},
  };
  const auto it = names->find(type & 0xFFFFFFFF);
  return it == names->end() ? "" : it->second;
}

absl::StatusOr<int64_t> FileSystemTypeOf(const std::string& folder) {
  struct statfs info {};
  if (statfs(folder.c_str(), &info) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot look at ", folder, ": ", std::strerror(errno)));
  }
  return static_cast<int64_t>(info.f_type);
}

absl::Status PrepareFolder(const std::string& path, const FileSystemType& type_of) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot make the folder ", folder.string(), ": ", error.message()));
  const auto type = type_of(folder.string());
  if (!type.ok()) return type.status();
  const std::string network = NetworkFileSystem(*type);
  if (network.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(folder.string(), " is on a network file system (", network,
                                                    "), which loses databases; put the store on a disk of this machine, or use "
                                                    "PostgreSQL where several machines must reach it"));
}

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return absl::UnavailableError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  std::unique_ptr<FileLock> lock(new FileLock(descriptor));
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = "";
    if (pread(descriptor, holder, sizeof(holder) - 1, 0) <= 0) holder[0] = '\0';
    const std::string pid(absl::StripAsciiWhitespace(holder));
    return absl::FailedPreconditionError(absl::StrCat(path, " is held by another tidetape-server",
                                                      pid.empty() ? "" : absl::StrCat(" (process ", pid, ")"),
                                                      "; stop it, or give this one a store of its own with --store"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    // The lock holds all the same; the id is for people. A full disk is the database's to report.
    return lock;
  }
  return lock;
}

FileLock::~FileLock() { close(descriptor_); }

}  // namespace tidetape::server
