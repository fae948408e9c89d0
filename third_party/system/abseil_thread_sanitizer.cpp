// Tells the thread sanitizer of Abseil's locks, and of what it cannot see of gRPC, for --config=tsan.
//
// Debian's Abseil is not instrumented, so that the sanitizer sees neither its locks nor what they order. The methods below come
// before the library's in symbol lookup, also for gRPC's own use of them: each calls the library's and says what it acquired and
// released.
#include <absl/status/status.h>
#include <absl/synchronization/blocking_counter.h>
#include <absl/synchronization/mutex.h>
#include <absl/synchronization/notification.h>
#include <absl/time/time.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

// Of compiler-rt and libtsan: interface_tsan.
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);

// Neither is gRPC instrumented, nor what it calls, so that the sanitizer does not see how they hand memory from thread to thread:
// what they touch themselves is left out, and so is what gRPC's headers do with its own state.
const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libupb.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libssl.so\n"
         "called_from_lib:libcrypto.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_random_internal_pool_urbg.so\n"
         "race:grpc::internal::CallbackWithSuccessTag::\n"
         "race:grpc::internal::InterceptorBatchMethodsImpl::\n";
}
}

namespace {

// The library's own method.
template <typename Function>
Function Original(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    std::fprintf(stderr, "abseil_thread_sanitizer: no %s: this Abseil is another version, adapt the names\n", symbol);
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

// The lock that this thread is letting go of or waits with: while it holds it, it evaluates the conditions of other threads.
thread_local void* evaluating = nullptr;

class Releasing {
 public:
  explicit Releasing(void* lock) : before_(evaluating) {
    __tsan_release(lock);
    evaluating = lock;
  }
  ~Releasing() { evaluating = before_; }
  Releasing(const Releasing&) = delete;
  Releasing& operator=(const Releasing&) = delete;

 private:
  void* const before_;
};

// The graph of locks that Abseil searches for deadlocks has a lock of its own, which is out of sight.
[[maybe_unused]] const bool kWithoutLockGraph = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

}  // namespace

#define TIDETAPE_ORIGINAL(type, symbol) static const auto original = Original<type>(symbol)

namespace absl {

void Mutex::Lock() {
  TIDETAPE_ORIGINAL(void (*)(Mutex*), "_ZN4absl7debian35Mutex4LockEv");
  original(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  TIDETAPE_ORIGINAL(void (*)(Mutex*), "_ZN4absl7debian35Mutex6UnlockEv");
  const Releasing releasing(this);
  original(this);
}

bool Mutex::TryLock() {
  TIDETAPE_ORIGINAL(bool (*)(Mutex*), "_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = original(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

// Readers are ordered among each other as well, which hides races between two of them only where one writes.
void Mutex::ReaderLock() {
  TIDETAPE_ORIGINAL(void (*)(Mutex*), "_ZN4absl7debian35Mutex10ReaderLockEv");
  original(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  TIDETAPE_ORIGINAL(void (*)(Mutex*), "_ZN4absl7debian35Mutex12ReaderUnlockEv");
  const Releasing releasing(this);
  original(this);
}

bool Mutex::ReaderTryLock() {
  TIDETAPE_ORIGINAL(bool (*)(Mutex*), "_ZN4absl7debian35Mutex13ReaderTryLockEv");
  const bool locked = original(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::LockWhen(const Condition& condition) {
  TIDETAPE_ORIGINAL(void (*)(Mutex*, const Condition&), "_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE");
  const Releasing releasing(this);
  original(this, condition);
  __tsan_acquire(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  TIDETAPE_ORIGINAL(bool (*)(Mutex*, const Condition&, Duration),
                    "_ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const Releasing releasing(this);
  const bool holds = original(this, condition, timeout);
  __tsan_acquire(this);
  return holds;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  TIDETAPE_ORIGINAL(bool (*)(Mutex*, const Condition&, Time),
                    "_ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const Releasing releasing(this);
  const bool holds = original(this, condition, deadline);
  __tsan_acquire(this);
  return holds;
}

void Mutex::Await(const Condition& condition) {
  TIDETAPE_ORIGINAL(void (*)(Mutex*, const Condition&), "_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  const Releasing releasing(this);
  original(this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  TIDETAPE_ORIGINAL(bool (*)(Mutex*, const Condition&, Duration),
                    "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  const Releasing releasing(this);
  const bool holds = original(this, condition, timeout);
  __tsan_acquire(this);
  return holds;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  TIDETAPE_ORIGINAL(bool (*)(Mutex*, const Condition&, Time),
                    "_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  const Releasing releasing(this);
  const bool holds = original(this, condition, deadline);
  __tsan_acquire(this);
  return holds;
}

bool Condition::Eval() const {
  TIDETAPE_ORIGINAL(bool (*)(const Condition*), "_ZNK4absl7debian39Condition4EvalEv");
  if (evaluating != nullptr) __tsan_acquire(evaluating);
  const bool holds = original(this);
  if (evaluating != nullptr) __tsan_release(evaluating);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  TIDETAPE_ORIGINAL(void (*)(CondVar*, Mutex*), "_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  const Releasing releasing(mutex);
  original(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  TIDETAPE_ORIGINAL(bool (*)(CondVar*, Mutex*, Duration), "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  const Releasing releasing(mutex);
  const bool timed_out = original(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  TIDETAPE_ORIGINAL(bool (*)(CondVar*, Mutex*, Time), "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  const Releasing releasing(mutex);
  const bool timed_out = original(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  TIDETAPE_ORIGINAL(void (*)(Notification*), "_ZN4absl7debian312Notification6NotifyEv");
  __tsan_release(this);
  original(this);
}

void Notification::WaitForNotification() const {
  TIDETAPE_ORIGINAL(void (*)(const Notification*), "_ZNK4absl7debian312Notification19WaitForNotificationEv");
  original(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  TIDETAPE_ORIGINAL(bool (*)(const Notification*, Duration),
                    "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool notified = original(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

// The last of a message's users frees it.
void Status::UnrefNonInlined(uintptr_t rep) {
  TIDETAPE_ORIGINAL(void (*)(uintptr_t), "_ZN4absl7debian36Status15UnrefNonInlinedEm");
  __tsan_release(reinterpret_cast<void*>(rep));
  __tsan_acquire(reinterpret_cast<void*>(rep));
  original(rep);
}

bool BlockingCounter::DecrementCount() {
  TIDETAPE_ORIGINAL(bool (*)(BlockingCounter*), "_ZN4absl7debian315BlockingCounter14DecrementCountEv");
  __tsan_release(this);
  return original(this);
}

void BlockingCounter::Wait() {
  TIDETAPE_ORIGINAL(void (*)(BlockingCounter*), "_ZN4absl7debian315BlockingCounter4WaitEv");
  original(this);
  __tsan_acquire(this);
}

}  // namespace absl
