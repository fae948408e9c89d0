// The C functions: fork check, validation, no exceptions; then PlannerLink.
#include "agent/link/tt_link.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "agent/link/planner_link.h"
#include "agent/link/tape_codec.h"

struct tt_link {
  pid_t owner = 0;
  std::unique_ptr<tidetape::link::PlannerLink> link;

  std::mutex mutex;
  std::string last_refusal;  // of the newest call with a bad argument
};

namespace {

// The process that opened the first link. Its children inherit gRPC's state without gRPC's threads, so they get no link.
std::atomic<pid_t> first_owner{0};

tt_link_status Refuse(tt_link* link, const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(link->mutex);
  link->last_refusal = std::string(status.message());
  return TT_LINK_INVALID_ARGUMENT;
}

// Runs `body` unless the process is a child of the one that opened the link. In a child nothing but the pid may be touched: locks
// may be held by threads that do not exist here.
template <typename Body>
tt_link_status Call(tt_link* link, Body body) {
  if (link == nullptr) return TT_LINK_INVALID_ARGUMENT;
  if (link->owner != getpid()) return TT_LINK_FORKED;
  try {
    return body();
  } catch (const std::exception&) {
    return TT_LINK_INTERNAL;
  }
}

void FillError(const std::string& message, char* error, size_t error_size) {
  if (error != nullptr && error_size > 0) std::snprintf(error, error_size, "%s", message.c_str());
}

}  // namespace

extern "C" {

int32_t tt_link_abi_version(void) { return TT_LINK_ABI_VERSION; }

tt_link* tt_link_open(const tt_link_options* options, char* error, size_t error_size) {
  if (options == nullptr) {
    FillError("options of the planner's link: null", error, error_size);
    return nullptr;
  }
  pid_t expected = 0;
  if (!first_owner.compare_exchange_strong(expected, getpid()) && expected != getpid()) {
    FillError("this process was forked from one that has a link to a planner; start it with spawn or exec instead", error,
              error_size);
    return nullptr;
  }
  try {
    absl::StatusOr<tidetape::link::LinkOptions> decoded = tidetape::link::DecodeOptions(*options);
    if (!decoded.ok()) {
      FillError(std::string(decoded.status().message()), error, error_size);
      return nullptr;
    }
    std::string complaint;
    auto opened = std::make_unique<tt_link>();
    opened->owner = getpid();
    opened->link = tidetape::link::MakePlannerLink(*std::move(decoded), &complaint);
    if (opened->link == nullptr) {
      FillError(complaint, error, error_size);
      return nullptr;
    }
    return opened.release();
  } catch (const std::exception& failure) {
    FillError(std::string("the planner's link did not start: ") + failure.what(), error, error_size);
    return nullptr;
  }
}

void tt_link_close(tt_link* link, double timeout_seconds) {
  const tt_link_status status = Call(link, [&] {
    // A day stands for any longer time; NaN and negative times do not wait.
    const double bounded = timeout_seconds > 0 ? std::min(timeout_seconds, 86400.0) : 0;
    link->link->Close(std::chrono::duration<double>(bounded));
    return TT_LINK_OK;
  });
  if (status == TT_LINK_OK) delete link;
}

tt_link_status tt_link_put_tape(tt_link* link, const tt_block_tape* tape) {
  return Call(link, [&] {
    if (tape == nullptr) return TT_LINK_INVALID_ARGUMENT;
    if (link->link->HasTape(tape->structure_hash)) return TT_LINK_OK;
    absl::StatusOr<tidetape::planner::BlockTape> decoded = tidetape::link::DecodeTape(*tape);
    if (!decoded.ok()) return Refuse(link, decoded.status());
    return link->link->PutTape(*std::move(decoded));
  });
}

tt_link_status tt_link_report_step(tt_link* link, const tt_step_report* report) {
  return Call(link, [&] {
    if (report == nullptr) return TT_LINK_INVALID_ARGUMENT;
    absl::StatusOr<tidetape::link::StepReport> decoded = tidetape::link::DecodeReport(*report);
    if (!decoded.ok()) return Refuse(link, decoded.status());
    return link->link->ReportStep(*std::move(decoded));
  });
}

tt_link_status tt_link_plan_activated(tt_link* link, int64_t generation, int64_t step) {
  return Call(link, [&] {
    if (generation < 0 || step < 0) {
      return Refuse(link, absl::InvalidArgumentError("activated plan: generation and step must not be negative"));
    }
    return link->link->PlanActivated(generation, step);
  });
}

const tt_plan* tt_link_take_plan(tt_link* link, int64_t above_generation) {
  const tt_plan* plan = nullptr;
  Call(link, [&] {
    plan = link->link->plans().Take(above_generation);
    return TT_LINK_OK;
  });
  return plan;
}

void tt_link_release_plan(const tt_plan* plan) {
  if (plan != nullptr) tidetape::link::TakeBack(plan);
}

tt_link_status tt_link_set_memory_limit(tt_link* link, int64_t memory_limit_bytes) {
  return Call(link, [&] {
    if (memory_limit_bytes < -1) {
      return Refuse(link,
                    absl::InvalidArgumentError("memory limit: use bytes, 0 for the least-memory plan or -1 to keep everything"));
    }
    return link->link->SetMemoryLimit(memory_limit_bytes);
  });
}

tt_link_status tt_link_state(tt_link* link, tt_link_state_info* info) {
  return Call(link, [&] {
    if (info == nullptr) return TT_LINK_INVALID_ARGUMENT;
    thread_local std::string last_error;
    const tidetape::link::LinkState state = link->link->State();
    last_error = state.last_error;
    if (last_error.empty()) {
      const std::lock_guard<std::mutex> lock(link->mutex);
      last_error = link->last_refusal;
    }
    info->connected = state.connected ? 1 : 0;
    info->reports_sent = state.reports_sent;
    info->reports_dropped = state.reports_dropped;
    info->reconnects = state.reconnects;
    info->plans_received = link->link->plans().count();
    info->last_error = last_error.c_str();
    return TT_LINK_OK;
  });
}

}  // extern "C"
