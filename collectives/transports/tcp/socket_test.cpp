#include "collectives/transports/tcp/socket.h"

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }

TEST(SocketTest, EndpointsAreReadAsTheyAreWritten) {
  for (const char* address : {"10.0.0.1", "::1", "fe80::1%eth0"}) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(ToText({address, 4711}));
    ASSERT_TRUE(endpoint.ok());
    EXPECT_EQ(endpoint->address, address);
    EXPECT_EQ(endpoint->port, 4711);
  }
  for (const char* text : {"", "10.0.0.1", "10.0.0.1 ", "10.0.0.1 0", "10.0.0.1 65536", "10.0.0.1 x"}) {
    EXPECT_EQ(ParseEndpoint(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(SocketTest, ConnectsToAListenerOnEitherFamily) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    const auto listener = ListenOn({address, 0});
    ASSERT_TRUE(listener.ok()) << listener.status();
    const auto endpoint = LocalEndpoint(listener->get());
    ASSERT_TRUE(endpoint.ok());
    EXPECT_EQ(endpoint->address, address);
    const auto socket = ConnectTo(*endpoint, Soon());
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_TRUE(PrepareConnection(socket->get(), absl::Seconds(3)).ok());
  }
}

TEST(SocketTest, ErrorsNameTheAddress) {
  auto listener = ListenOn({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const auto endpoint = LocalEndpoint(listener->get());
  ASSERT_TRUE(endpoint.ok());
  listener->Reset();
  const absl::Status refused = ConnectTo(*endpoint, Soon()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(ToText(*endpoint)));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("Connection refused"));
  EXPECT_THAT(std::string(ListenOn({"192.0.2.1", 0}).status().message()), HasSubstr("cannot listen on 192.0.2.1"));
  EXPECT_EQ(ListenOn({"localhost", 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ListenOn({"", 0}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SocketTest, TheAddressTowardsThisHostIsItsOwn) {
  EXPECT_EQ(AddressTowards("127.0.0.1").value(), "127.0.0.1");
  EXPECT_EQ(AddressTowards("::1").value(), "::1");
  EXPECT_FALSE(AddressTowards("no address").ok());
}

}  // namespace
}  // namespace tidetape::collectives
