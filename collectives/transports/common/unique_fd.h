// A file descriptor with one owner.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_UNIQUE_FD_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace tidetape::collectives {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_COMMON_UNIQUE_FD_H_
