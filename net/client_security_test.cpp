#include "net/client_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace tidetape::net {
namespace {

using testing::HasSubstr;

std::string File(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << content;
  return path;
}

std::string Complaint(const ClientSecurity& security, const std::string& address = "127.0.0.1:1") {
  return std::string(ClientCredentials::Load(security, address).status().message());
}

TEST(ClientSecurity, NothingIsNeededOnThisMachine) { EXPECT_EQ(Complaint({}), ""); }

TEST(ClientSecurity, ATokenStaysOnThisMachineUnlessEncrypted) {
  ClientSecurity security;
  security.token_file = File("token", "abc123\n");
  EXPECT_EQ(Complaint(security, "127.0.0.1:1"), "");
  EXPECT_EQ(Complaint(security, "[::1]:1"), "");
  EXPECT_EQ(Complaint(security, "localhost:1"), "");
  EXPECT_THAT(Complaint(security, "planner.example:1"), HasSubstr("would go to planner.example:1 unencrypted"));
  EXPECT_THAT(Complaint(security, "127.example.org:1"), HasSubstr("unencrypted"));
  security.ca_file = File("ca", "certificate");
  EXPECT_EQ(Complaint(security, "planner.example:1"), "");
}

TEST(ClientSecurity, SaysWhichFileIsWrongAndNotWhatIsInIt) {
  ClientSecurity security;
  security.token_file = "/nowhere/token";
  EXPECT_EQ(Complaint(security), "cannot read the token /nowhere/token");
  security.token_file = File("empty", "");
  EXPECT_THAT(Complaint(security), HasSubstr("is empty"));
  security.token_file = File("odd", "s3cret\nline2");
  EXPECT_THAT(Complaint(security), HasSubstr("has characters that no token has"));
  EXPECT_THAT(Complaint(security), testing::Not(HasSubstr("s3cret")));
  security = {};
  security.certificate_file = File("cert", "x");
  EXPECT_THAT(Complaint(security), HasSubstr("go together"));
  security.key_file = File("key", "x");
  EXPECT_THAT(Complaint(security), HasSubstr("TIDETAPE_TLS_CA"));
}

TEST(ClientSecurity, ANewCertificateNeedsANewChannelAndANewTokenDoesNot) {
  ClientSecurity security;
  security.ca_file = File("ca1", "one");
  security.token_file = File("token1", "abc");
  const auto before = ClientCredentials::Load(security, "a:1").value();
  File("token1", "def");
  EXPECT_TRUE(before.SameChannel(ClientCredentials::Load(security, "a:1").value()));
  File("ca1", "two");
  EXPECT_FALSE(before.SameChannel(ClientCredentials::Load(security, "a:1").value()));
}

}  // namespace
}  // namespace tidetape::net
