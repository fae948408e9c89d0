#include "server/http/status_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/escaping.h"
#include "server/auth/token_file.h"
#include "server/testing/planned_example.h"
#include "server/testing/test_certificates.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class StatusPagesTest : public testing::Test {
 protected:
  StatusPagesTest() : open_(nullptr) {
    sources_.authenticator = &open_;
    sources_.clock = &example_.clock();
    sources_.ready = [] { return absl::OkStatus(); };
    sources_.jobs = [this] { return std::vector<std::shared_ptr<Job>>{example_.job()}; };
    sources_.streams = [] { return size_t{2}; };
    sources_.insights = std::make_shared<JobInsights>(JobInsights::Options(), &example_.clock(), [](std::function<void()> task) {
      task();
      return true;
    });
  }

  HttpResponse Get(const std::string& path, HttpRequest request = {}) { return MakeStatusPages(sources_).at(path)(request); }
  std::string JobPage(const std::string& name = "example") { return Get("/job", {.query = {{"name", name}}}).body; }

  // A step of each rank under the plan.
  void Report(const std::string& node_of_one = "node1") {
    v1::Hello hello = example_.Hello(1, 2);
    hello.set_node(node_of_one);
    ASSERT_TRUE(example_.job()->Update(hello, example_.channel(1), ExpectStored()).ok());
    for (const int rank : {0, 1}) {
      v1::StepReport report;
      report.set_step(41 + rank);
      report.set_generation(1);
      report.set_step_seconds(0.25);
      report.set_step_peak_bytes(1200 + 80 * rank);
      report.set_replay_seconds(0.002);
      example_.Report(rank, report);
    }
  }

  PlannedExample example_{2};
  const Authenticator open_;
  StatusSources sources_;
};

TEST_F(StatusPagesTest, EventsComeFirstThenTheServerThenJobs) {
  example_.Plan();
  Report();
  const std::string body = Get("/").body;
  const size_t events = body.find("Recent events"), server = body.find(">Server<"), jobs = body.find(">Jobs<");
  EXPECT_LT(events, server);
  EXPECT_LT(server, jobs);
  // The newest first.
  EXPECT_LT(body.find("committed generation 1"), body.find("rank 0 of 2 connected from node0"));
  EXPECT_THAT(body, HasSubstr("<a href=\"job?name=example\">example</a>"));
  EXPECT_THAT(body, HasSubstr("2 of 2"));
  EXPECT_THAT(body, HasSubstr("1.25 KiB"));  // 1280 bytes
  EXPECT_THAT(body, HasSubstr("250 ms"));
  EXPECT_THAT(body, HasSubstr("-1.54 %"));  // (1280 - 1300) / 1300
  EXPECT_THAT(body, HasSubstr("ready</span>"));
}

TEST_F(StatusPagesTest, AJobShowsTheWorstRankTheFrontierMemoryAndBlocks) {
  example_.Plan();
  Report();
  const std::string body = JobPage();
  EXPECT_LT(body.find("Recent events"), body.find(">Now<"));
  // The newest one is on top.
  ASSERT_NE(body.find("committed generation 1: "), std::string::npos);
  EXPECT_LT(body.find("committed generation 1: "), body.find("rank 0 of 2 connected"));
  EXPECT_THAT(body, HasSubstr("rank 1 on node1<small>1.25 KiB at the step's peak"));
  EXPECT_THAT(body, HasSubstr("The job stands at 1.27 KiB, 1 ms"));  // 1300 bytes
  // 1100 bytes: the first block keeps nothing, the second what is dear. 1400: all is kept.
  EXPECT_THAT(body, HasSubstr("From 1.07 KiB with the least memory to 1.37 KiB with everything kept"));
  EXPECT_THAT(body, HasSubstr("predicted peak of each part, by generation 1: 1.27 KiB at the most"));
  EXPECT_THAT(body, HasSubstr("No rank has measured a step yet."));
  EXPECT_THAT(body, HasSubstr("Values of layers.0"));
  EXPECT_THAT(body, HasSubstr("aten::op2"));
  EXPECT_THAT(body, HasSubstr("no pacing plan"));
  EXPECT_THAT(body, Not(HasSubstr("Grafana")));
}

TEST_F(StatusPagesTest, MeasuredMemoryIsDrawnBesideThePrediction) {
  example_.Plan();
  v1::StepReport report = ExampleReport(3);
  report.set_step_peak_bytes(1250);
  for (const int64_t bytes : {900, 1000, 1000, 1200, 1100, 1000, 1000, 900}) report.add_live_bytes(bytes);
  example_.Report(0, report);
  const std::string body = JobPage();
  EXPECT_THAT(body, HasSubstr("measured by rank 0 on node0, step 3, generation 0: 1.22 KiB at the step's peak"));
  EXPECT_THAT(body, HasSubstr("<title>backward of layers.1: 1.07 KiB</title>"));
}

TEST_F(StatusPagesTest, BeforeThePlanItSaysWhatIsMissing) {
  const std::string body = JobPage();
  EXPECT_THAT(body, HasSubstr("waits for a profile of a steady step from ranks: 0, 1"));
  EXPECT_THAT(body, HasSubstr("has no plan yet"));
  EXPECT_THAT(body, HasSubstr("No plan yet."));
}

TEST_F(StatusPagesTest, WhatAgentsSayCannotBecomeMarkup) {
  example_.Plan();
  Report("<script>alert('n')</script>");
  v1::PlanHeld held;
  held.set_generation(1);
  held.set_error("\"><img src=x onerror=alert(1)>");
  ASSERT_TRUE(example_.job()->AddPlanHeld(1, example_.channel(1), held, ExpectStored()).ok());
  for (const std::string& body : {Get("/").body, JobPage()}) {
    EXPECT_THAT(body, Not(HasSubstr("<script")));
    EXPECT_THAT(body, Not(HasSubstr("<img")));
    EXPECT_THAT(body, HasSubstr("&lt;img src=x onerror=alert(1)&gt;"));
  }
  EXPECT_THAT(JobPage(), HasSubstr("&lt;script&gt;alert(&#39;n&#39;)&lt;/script&gt;"));
  const HttpResponse missing = Get("/job", {.query = {{"name", "<b>x</b>"}}});
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, Not(HasSubstr("<b>")));
}

TEST_F(StatusPagesTest, NothingIsLoadedFromElsewhere) {
  example_.Plan();
  Report();
  for (const char* path : {"/", "/job"}) {
    const HttpResponse response = Get(path, {.query = {{"name", "example"}}});
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(response.headers.at("Content-Security-Policy"), HasSubstr("default-src 'none'"));
    EXPECT_THAT(response.body, Not(HasSubstr("src=")));
    EXPECT_THAT(response.body, Not(HasSubstr("url(")));
    EXPECT_THAT(response.body, Not(HasSubstr("https://")));
  }
}

TEST_F(StatusPagesTest, ItLoadsItselfAgainUnlessToldNotTo) {
  EXPECT_THAT(Get("/").body, HasSubstr("<meta http-equiv=\"refresh\" content=\"10\">"));
  EXPECT_THAT(Get("/", {.query = {{"refresh", "3"}}}).body, HasSubstr("content=\"3\""));
  EXPECT_THAT(Get("/", {.query = {{"refresh", "0"}}}).body, Not(HasSubstr("http-equiv=\"refresh\"")));
  EXPECT_THAT(Get("/", {.query = {{"refresh", "1\" onload=\""}}}).body, HasSubstr("content=\"10\""));
}

TEST_F(StatusPagesTest, TheDashboardsLinkNamesTheJob) {
  sources_.grafana_url = "https://grafana.example/d/tidetape-job?var-job={job}&x=\"";
  EXPECT_THAT(JobPage(), HasSubstr("href=\"https://grafana.example/d/tidetape-job?var-job=example&amp;x=&quot;\""));
  EXPECT_TRUE(CheckGrafanaUrl(sources_.grafana_url).ok());
  EXPECT_TRUE(CheckGrafanaUrl("").ok());
  EXPECT_FALSE(CheckGrafanaUrl("javascript:alert(1)").ok());
}

TEST_F(StatusPagesTest, TakesTheTokensOfReadersAndOperators) {
  TestCertificates files("status-pages");
  std::ofstream(files.File("tokens")) << files.MakeToken("ada", "reader") << files.MakeToken("trainer", "agent", "*");
  auto tokens = TokenFile::Open(files.File("tokens"), &example_.clock());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const Authenticator authenticator(*std::move(tokens));
  sources_.authenticator = &authenticator;
  const auto basic = [](const std::string& password) { return "Basic " + absl::Base64Escape("anyone:" + password); };
  const auto token = [&files](const std::string& name) {
    std::string text;
    std::ifstream(files.File(name + ".token")) >> text;
    return text;
  };
  for (const char* path : {"/", "/job"}) {
    const auto status = [&](std::optional<std::string> authorization) {
      return Get(path, {.authorization = std::move(authorization), .query = {{"name", "example"}}}).status;
    };
    EXPECT_EQ(status(std::nullopt), 401);
    EXPECT_EQ(status(basic("wrong")), 401);
    EXPECT_EQ(status("Basic !"), 401);
    EXPECT_EQ(status("Basic " + absl::Base64Escape("nocolon")), 401);
    EXPECT_EQ(status(basic(token("trainer"))), 403);
    EXPECT_EQ(status(basic(token("ada"))), 200);
    EXPECT_EQ(status("Bearer " + token("ada")), 200);
  }
  // What makes a browser ask.
  EXPECT_EQ(Get("/").headers.at("WWW-Authenticate"), "Basic realm=\"tidetape\"");
  EXPECT_THAT(Get("/").body, Not(HasSubstr("example")));
}

}  // namespace
}  // namespace tidetape::server
