#include "agent/link/stream_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/link/message_codec.h"

namespace tidetape::link {
namespace {

// A server that says more is not believed.
constexpr double kLongestDrainSeconds = 300;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

StreamSession::StreamSession(const LinkOptions& options, Outbox& outbox, PlanSlot& plans, bool recap)
    : options_(options), outbox_(outbox), plans_(plans), recap_(recap ? outbox.Recap() : nullptr) {}

bool StreamSession::Next(v1::ConnectRequest* request) {
  request->Clear();
  request->set_sequence(sequence_ + 1);
  if (hello_sent_ && (!welcomed_ || drain_seconds_)) return false;
  if (!hello_sent_ || outbox_.memory_limit_bytes() != told_limit_) {
    FillHello(request->mutable_hello());
  } else if (NextTapeChunk(request->mutable_tape_chunk())) {
    // Filled. Tapes go before the reports that name them.
  } else if (!answers_.empty()) {
    *request->mutable_plan_held() = std::move(answers_.front());
    answers_.pop_front();
  } else if (const Activation activation = outbox_.activation(); activation != told_activation_) {
    told_activation_ = activation;
    request->mutable_plan_activated()->set_generation(activation.generation);
    request->mutable_plan_activated()->set_step(activation.step);
  } else if (!NextReport(request)) {
    return false;
  }
  ++sequence_;
  return true;
}

void StreamSession::FillHello(v1::Hello* hello) {
  told_limit_ = outbox_.memory_limit_bytes();
  hello->set_job(options_.job);
  hello->set_incarnation(options_.incarnation);
  hello->set_incarnation_order(options_.incarnation_order);
  hello->set_rank(options_.rank);
  hello->set_world_size(options_.world_size);
  hello->set_node(options_.node);
  hello->set_pod_namespace(Environment("POD_NAMESPACE"));
  hello->set_pod(Environment("POD_NAME"));
  hello->set_slurm_job_id(Environment("SLURM_JOB_ID"));
  hello->set_pid(getpid());
  hello->set_torch_version(options_.torch_version);
  hello->set_device(options_.device);
  hello->set_agent_version(options_.agent_version);
  hello->set_memory_limit_bytes(told_limit_);
  const Activation activation = outbox_.activation();
  hello->set_active_generation(activation.generation);
  hello->set_held_generation(std::max(plans_.generation(), activation.generation));
  if (hello_sent_) return;
  // The server answers the first Hello with what it lacks of these; later tapes are sent unasked.
  hello_sent_ = true;
  for (uint64_t hash : outbox_.tapes().Since(0)) {
    hello->add_structure_hashes(hash);
    ++seen_tapes_;
  }
}

void StreamSession::QueueTape(uint64_t structure_hash) {
  const bool waiting =
      std::any_of(tapes_.begin(), tapes_.end(), [&](const OutgoingTape& tape) { return tape.structure_hash == structure_hash; });
  if (!waiting && outbox_.tapes().Has(structure_hash)) tapes_.push_back({structure_hash, nullptr, 0, 0});
}

bool StreamSession::NextTapeChunk(v1::TapeChunk* chunk) {
  for (uint64_t hash : outbox_.tapes().Since(seen_tapes_)) {
    ++seen_tapes_;
    QueueTape(hash);
  }
  if (tapes_.empty()) return false;
  OutgoingTape& tape = tapes_.front();
  if (tape.bytes == nullptr) tape.bytes = outbox_.tapes().Serialized(tape.structure_hash);
  const size_t size = std::min(kChunkBytes, tape.bytes->size() - tape.offset);
  chunk->set_structure_hash(tape.structure_hash);
  chunk->set_index(tape.index++);
  chunk->set_count(static_cast<int32_t>((tape.bytes->size() + kChunkBytes - 1) / kChunkBytes));
  chunk->set_data(tape.bytes->data() + tape.offset, size);
  tape.offset += size;
  if (tape.offset == tape.bytes->size()) tapes_.pop_front();
  return true;
}

bool StreamSession::NextReport(v1::ConnectRequest* request) {
  while (true) {
    std::shared_ptr<const StepReport> report = std::exchange(recap_, nullptr);
    if (report == nullptr) report = outbox_.NextReport(sequence_ + 1);
    if (report == nullptr) return false;
    *request->mutable_step_report() = ReportToMessage(*report);
    const size_t bytes = request->ByteSizeLong();
    if (bytes <= kMessageBytes) return true;
    complaint_ = absl::StrCat("the report of step ", report->step, " has ", bytes, " bytes, more than the ", kMessageBytes,
                              " that a server takes; it was not sent");
  }
}

void StreamSession::Handle(const v1::ConnectResponse& response) {
  switch (response.message_case()) {
    case v1::ConnectResponse::kWelcome:
      welcomed_ = true;
      for (uint64_t hash : response.welcome().missing_tapes()) QueueTape(hash);
      break;
    case v1::ConnectResponse::kAck:
      outbox_.Acknowledge(response.ack().sequence());
      break;
    case v1::ConnectResponse::kPlan:
      HandlePlan(response.plan());
      break;
    case v1::ConnectResponse::kTapeRequest:
      for (uint64_t hash : response.tape_request().structure_hashes()) QueueTape(hash);
      break;
    case v1::ConnectResponse::kDrain: {
      const double seconds = response.drain().reconnect_after_seconds();
      drain_seconds_ = std::isfinite(seconds) ? std::clamp(seconds, 0.0, kLongestDrainSeconds) : 0;
      break;
    }
    default:
      // A message of a newer server: nothing that this agent acts on.
      break;
  }
}

void StreamSession::HandlePlan(const v1::Plan& message) {
  const std::string error = TakePlan(message);
  if (!error.empty()) complaint_ = error;
  v1::PlanHeld& answer = answers_.emplace_back();
  answer.set_generation(message.generation());
  answer.set_error(error);
}

std::string StreamSession::TakePlan(const v1::Plan& message) {
  const std::string name = absl::StrCat("plan ", message.generation(), ": ");
  if (message.job() != options_.job || message.incarnation() != options_.incarnation) {
    return absl::StrCat(name, "it is for incarnation '", message.incarnation(), "' of job '", message.job(), "'");
  }
  auto plan = PlanFromMessage(message);
  if (!plan.ok()) return std::string(plan.status().message());
  const std::shared_ptr<const OwnedPlan> held = plans_.Peek();
  if (held != nullptr && held->plan().generation == message.generation()) {
    // Two plans under one generation would let the ranks agree on a number and run different plans.
    if (held->plan().etag != message.etag()) return absl::StrCat(name, "another plan of this generation is held");
    return "";
  }
  if (held != nullptr && held->plan().generation > message.generation()) {
    return absl::StrCat(name, "generation ", held->plan().generation, " is held already");
  }
  plans_.Put(*std::move(plan));
  return "";
}

}  // namespace tidetape::link
