// Bytes that many share: what all streams together may hold of tapes that are not complete yet.
#ifndef TIDETAPE_SERVER_MESSAGES_BYTE_BUDGET_H_
#define TIDETAPE_SERVER_MESSAGES_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace tidetape::server {

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t bytes) : left_(bytes) {}

  // False, without taking any, where fewer are left.
  bool Take(int64_t bytes) {
    if (left_.fetch_sub(bytes) >= bytes) return true;
    left_ += bytes;
    return false;
  }

  void Return(int64_t bytes) { left_ += bytes; }

  int64_t left() const { return left_; }

 private:
  std::atomic<int64_t> left_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_MESSAGES_BYTE_BUDGET_H_
