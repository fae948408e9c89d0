// A PlannerService for tests that keeps what agents send and says what it is told to.
#ifndef TIDETAPE_AGENT_LINK_TESTING_FAKE_SERVER_H_
#define TIDETAPE_AGENT_LINK_TESTING_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tidetape/v1/planner_service.grpc.pb.h"

namespace tidetape::link {

class FakeServer final : public v1::PlannerService::Service {
 public:
  struct Behaviour {
    bool acknowledge = true;
    // False: nothing is read after Hello.
    bool read = true;
    // What Hello is answered with, if it is an error.
    grpc::Status hello_status;
  };

  // Port 0 takes a free one; port() says which.
  explicit FakeServer(Behaviour behaviour, int port = 0) : behaviour_(std::move(behaviour)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(), &port_);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  // Ends all streams at once, as a killed process would.
  ~FakeServer() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  bool listening() const { return server_ != nullptr && port_ != 0; }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status Connect(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) override {
    v1::ConnectRequest request;
    if (!stream->Read(&request) || !request.has_hello()) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no hello");
    v1::ConnectResponse response;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++streams_;
      requests_.push_back(request);
      for (uint64_t hash : request.hello().structure_hashes()) {
        if (tapes_.count(hash) == 0) response.mutable_welcome()->add_missing_tapes(hash);
      }
      changed_.notify_all();
    }
    if (!behaviour_.hello_status.ok()) return behaviour_.hello_status;
    response.mutable_welcome()->set_server_version("fake");
    stream->Write(response);
    if (behaviour_.acknowledge) Acknowledge(request, *stream);
    SetStream(stream);
    while (behaviour_.read && stream->Read(&request)) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (request.has_tape_chunk()) Assemble(request.tape_chunk());
        requests_.push_back(request);
        changed_.notify_all();
      }
      if (behaviour_.acknowledge) Acknowledge(request, *stream);
    }
    if (!behaviour_.read) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_; });
    }
    SetStream(nullptr);
    return grpc::Status::OK;
  }

  // Sends to the newest stream.
  void Send(const v1::ConnectResponse& response) {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    if (stream_ != nullptr) stream_->Write(response);
  }

  // Waits until the condition on what has arrived holds; false after a long time.
  bool Await(const std::function<bool(const std::vector<v1::ConnectRequest>&)>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return condition(requests_); });
  }

  // Waits for a request of this kind (the first one).
  bool AwaitKind(v1::ConnectRequest::MessageCase kind, v1::ConnectRequest* found) {
    return Await([&](const std::vector<v1::ConnectRequest>& requests) {
      for (const v1::ConnectRequest& request : requests) {
        if (request.message_case() != kind) continue;
        *found = request;
        return true;
      }
      return false;
    });
  }

  std::vector<v1::ConnectRequest> requests() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

  // A tape whose chunks have all arrived, in order; empty otherwise.
  std::string tape(uint64_t hash) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = tapes_.find(hash);
    return found == tapes_.end() ? "" : found->second;
  }

  int streams() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return streams_;
  }

 private:
  void Acknowledge(const v1::ConnectRequest& request, grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>& stream) {
    v1::ConnectResponse response;
    response.mutable_ack()->set_sequence(request.sequence());
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    stream.Write(response);
  }

  void SetStream(grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream) {
    const std::lock_guard<std::mutex> lock(stream_mutex_);
    stream_ = stream;
  }

  void Assemble(const v1::TapeChunk& chunk) {
    std::pair<int, std::string>& partial = partials_[chunk.structure_hash()];
    if (chunk.index() != partial.first) return;
    partial.second += chunk.data();
    if (++partial.first == chunk.count()) tapes_[chunk.structure_hash()] = partial.second;
  }

  const Behaviour behaviour_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::ConnectRequest> requests_;
  std::map<uint64_t, std::pair<int, std::string>> partials_;
  std::map<uint64_t, std::string> tapes_;
  int streams_ = 0;
  bool stopping_ = false;
  std::mutex stream_mutex_;
  grpc::ServerReaderWriter<v1::ConnectResponse, v1::ConnectRequest>* stream_ = nullptr;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tidetape::link

#endif  // TIDETAPE_AGENT_LINK_TESTING_FAKE_SERVER_H_
