// Zeroed memory of this process alone, page-aligned, that takes room only as it is touched.
#ifndef TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PAGES_H_
#define TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PAGES_H_

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace tidetape::collectives {

class Pages {
 public:
  Pages() = default;
  static absl::StatusOr<Pages> Map(uint64_t bytes) {
    void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot map ", bytes, " bytes: ", std::strerror(errno)));
    }
    Pages pages;
    pages.span_ = {static_cast<std::byte*>(start), bytes};
    return pages;
  }
  Pages(Pages&& other) noexcept : span_(std::exchange(other.span_, {})) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(span_, other.span_);
    return *this;
  }
  ~Pages() {
    if (!span_.empty()) munmap(span_.data(), span_.size());
  }
  absl::Span<std::byte> span() const { return span_; }

 private:
  absl::Span<std::byte> span_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_TRANSPORTS_TCP_PAGES_H_
