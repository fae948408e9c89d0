// An agent with certificates and a token from files, as the environment names them, and a real server that asks for both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "agent/link/testing/linked_ranks.h"
#include "server/testing/server_process.h"
#include "server/testing/test_certificates.h"

namespace tidetape::link {
namespace {

using server::ServerProcess;
using server::TestCertificates;
using testing::HasSubstr;

class SecureLinkTest : public testing::Test {
 protected:
  SecureLinkTest() {
    certificates_.Make("server");
    certificates_.Make("agent");
    certificates_.Make("old", /*expired=*/true);
    // The job of MakeOptions.
    std::ofstream(certificates_.File("tokens"))
        << certificates_.MakeToken("mine", "agent", "*") << certificates_.MakeToken("another", "agent", "other-*");
    certificates_.MakeToken("unknown", "agent", "*");
    EXPECT_TRUE(server_.Start());
  }

  void Use(const std::string& certificate, const std::string& token) {
    const auto security = certificates_.Security(certificate, token);
    setenv("TIDETAPE_TLS_CA", security.ca_file.c_str(), 1);
    setenv("TIDETAPE_TLS_CERT", security.certificate_file.c_str(), 1);
    setenv("TIDETAPE_TLS_KEY", security.key_file.c_str(), 1);
    setenv("TIDETAPE_TOKEN_FILE", security.token_file.c_str(), 1);
  }

  TestCertificates certificates_{"link"};
  ServerProcess server_{{"--store=memory", "--tls_cert=" + certificates_.File("server.pem"),
                         "--tls_key=" + certificates_.File("server.key"), "--tls_client_ca=" + certificates_.File("ca.pem"),
                         "--token_file=" + certificates_.File("tokens")}};
};

TEST_F(SecureLinkTest, GetsItsPlan) {
  Use("agent", "mine");
  LinkedRanks ranks(server_.address(), 2);
  ranks.PutTapesAndReport(1);
  EXPECT_EQ(ranks.AwaitPlanAbove(0), 1) << ranks.LastError();
}

TEST_F(SecureLinkTest, SaysWhyItIsKeptOut) {
  Use("agent", "unknown");
  EXPECT_TRUE(LinkedRanks(server_.address(), 1).AwaitError("the token is not known here"));
  Use("agent", "another");
  EXPECT_TRUE(LinkedRanks(server_.address(), 1).AwaitError("is an agent of the jobs 'other-*', not of"));
  Use("agent", "missing");
  EXPECT_TRUE(LinkedRanks(server_.address(), 1).AwaitError("cannot read the token"));
  Use("old", "mine");
  EXPECT_TRUE(LinkedRanks(server_.address(), 1).AwaitError("ended: "));
  for (const char* name : {"TIDETAPE_TLS_CA", "TIDETAPE_TLS_CERT", "TIDETAPE_TLS_KEY"}) unsetenv(name);
  EXPECT_TRUE(LinkedRanks("planner.example:1", 1).AwaitError("would go to planner.example:1 unencrypted"));
}

// As when something renews them while training runs.
TEST_F(SecureLinkTest, TakesFilesThatComeLater) {
  Use("agent", "later");
  LinkedRanks ranks(server_.address(), 1);
  ranks.PutTapesAndReport(1);
  ASSERT_TRUE(ranks.AwaitError("cannot read the token"));
  std::filesystem::copy_file(certificates_.File("mine.token"), certificates_.File("later.token"));
  EXPECT_EQ(ranks.AwaitPlanAbove(0), 1) << ranks.LastError();
}

}  // namespace
}  // namespace tidetape::link
