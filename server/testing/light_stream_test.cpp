#include "server/testing/light_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/testing/example_job.h"
#include "server/testing/server_process.h"

namespace tidetape::server {
namespace {

constexpr char kConnect[] = "/tidetape.v1.PlannerService/Connect";

class LightStreamTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(server_.Start()); }

  std::unique_ptr<LightStream> Open() {
    return LightStream::Open(
               server_.address(), kConnect,
               [this](std::string_view message) {
                 ASSERT_TRUE(answers_.emplace_back().ParseFromArray(message.data(), static_cast<int>(message.size())));
               })
        .value();
  }

  void AwaitThat(LightStream& stream, const std::function<bool()>& done) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!done()) {
      ASSERT_LT(absl::Now(), deadline) << (stream.ended() ? "the call ended" : "");
      pollfd ready = {.fd = stream.fd(), .events = POLLIN, .revents = 0};
      poll(&ready, 1, 10);
      stream.Progress();
    }
  }

  int64_t acknowledged() const {
    int64_t sequence = 0;
    for (const v1::ConnectResponse& answer : answers_) sequence = std::max(sequence, answer.ack().sequence());
    return sequence;
  }

  ServerProcess server_{{"--store=memory"}};
  std::vector<v1::ConnectResponse> answers_;
};

v1::ConnectRequest HelloRequest() {
  v1::ConnectRequest request;
  *request.mutable_hello() = ExampleHello(0, 1);
  request.set_sequence(1);
  return request;
}

TEST_F(LightStreamTest, TalksToTheServer) {
  const auto stream = Open();
  stream->Write(HelloRequest());
  AwaitThat(*stream, [&] { return acknowledged() == 1; });
  EXPECT_THAT(answers_, testing::Contains(testing::Property(&v1::ConnectResponse::has_welcome, true)));
  // Many at once.
  v1::ConnectRequest report;
  for (int i = 2; i <= 50; ++i) {
    report.mutable_step_report()->set_step(i);
    report.set_sequence(i);
    stream->Write(report);
  }
  AwaitThat(*stream, [&] { return acknowledged() == 50; });
  EXPECT_TRUE(stream->flushed());
  EXPECT_FALSE(stream->ended());
}

// Larger than the windows of flow control and than what the connection takes at once.
TEST_F(LightStreamTest, SendsALargeMessageAsTheServerTakesIt) {
  const auto stream = Open();
  stream->Write(HelloRequest());
  v1::BlockTape tape = ExampleTape();
  for (int i = 0; i < 40'000; ++i) *tape.add_storages() = tape.storages(1);
  v1::ConnectRequest request;
  v1::TapeChunk* chunk = request.mutable_tape_chunk();
  chunk->set_structure_hash(tape.structure_hash());
  chunk->set_count(1);
  tape.SerializeToString(chunk->mutable_data());
  request.set_sequence(2);
  stream->Write(request);
  EXPECT_FALSE(stream->flushed());
  AwaitThat(*stream, [&] { return acknowledged() == 2; });
  EXPECT_TRUE(stream->flushed());
}

TEST_F(LightStreamTest, NoticesTheEndOfACall) {
  const auto refused = Open();
  refused->Write(v1::ConnectRequest());  // no hello
  AwaitThat(*refused, [&] { return refused->ended(); });

  const auto cut = Open();
  cut->Write(HelloRequest());
  AwaitThat(*cut, [&] { return acknowledged() == 1; });
  server_.Stop(SIGKILL);
  AwaitThat(*cut, [&] { return cut->ended(); });
  cut->Write(HelloRequest());
  EXPECT_TRUE(cut->ended());
}

TEST_F(LightStreamTest, SaysWhyItCannotConnect) {
  server_.Stop(SIGKILL);
  const auto nobody = LightStream::Open(server_.address(), kConnect, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(nobody.status())) << nobody.status();
  EXPECT_THAT(std::string(nobody.status().message()), testing::HasSubstr(server_.address()));
  for (const char* address : {"", "127.0.0.1", "host:1", "127.0.0.1:x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(LightStream::Open(address, kConnect, nullptr).status())) << address;
  }
}

}  // namespace
}  // namespace tidetape::server
