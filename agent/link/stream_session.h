// The protocol of one Connect stream, without the stream: what to write next, and what a message from the server means.
//
// Hello comes first, and nothing else before the server's Welcome. Then, by urgency: a changed limit (another Hello), tapes,
// answers to plans, the activated generation, and step reports.
#ifndef TIDETAPE_AGENT_LINK_STREAM_SESSION_H_
#define TIDETAPE_AGENT_LINK_STREAM_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/link/outbox.h"
#include "agent/link/plan_slot.h"
#include "agent/link/planner_link.h"
#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::link {

// Used by the link's thread alone. `options`, `outbox` and `plans` must outlive it.
class StreamSession {
 public:
  // A piece of a serialized tape is at most this long.
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  // Larger messages would end the stream: the server takes 8 MiB.
  static constexpr size_t kMessageBytes = (size_t{8} << 20) - (size_t{64} << 10);

  // `recap`: reports may have been lost with an earlier stream or server, so the newest profile is sent again.
  StreamSession(const LinkOptions& options, Outbox& outbox, PlanSlot& plans, bool recap);

  // Fills the next message to write; false where there is nothing to say now.
  bool Next(v1::ConnectRequest* request);

  // Takes a message of the server.
  void Handle(const v1::ConnectResponse& response);

  bool welcomed() const { return welcomed_; }

  // Set once the server is about to stop: when to connect again, in seconds.
  std::optional<double> drain_seconds() const { return drain_seconds_; }

  // What went wrong last without ending the stream; empty where all is well.
  const std::string& complaint() const { return complaint_; }

 private:
  struct OutgoingTape {
    uint64_t structure_hash = 0;
    std::shared_ptr<const std::string> bytes;
    size_t offset = 0;
    int32_t index = 0;
  };

  void FillHello(v1::Hello* hello);
  // Puts a tape in line, once; an unknown one is another rank's to send.
  void QueueTape(uint64_t structure_hash);
  bool NextTapeChunk(v1::TapeChunk* chunk);
  bool NextReport(v1::ConnectRequest* request);
  void HandlePlan(const v1::Plan& message);
  // Empty where the plan was taken.
  std::string TakePlan(const v1::Plan& message);

  const LinkOptions& options_;
  Outbox& outbox_;
  PlanSlot& plans_;

  int64_t sequence_ = 0;
  bool hello_sent_ = false;
  bool welcomed_ = false;
  int64_t told_limit_ = 0;
  Activation told_activation_;
  size_t seen_tapes_ = 0;  // position in the cache's order of arrival
  std::deque<OutgoingTape> tapes_;
  std::deque<v1::PlanHeld> answers_;
  std::shared_ptr<const StepReport> recap_;
  std::optional<double> drain_seconds_;
  std::string complaint_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_STREAM_SESSION_H_
