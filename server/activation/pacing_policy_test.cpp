#include "server/activation/pacing_policy.h"

#include <gtest/gtest.h>

namespace tidetape::server {
namespace {

planner::LinkReport Links(double compute_seconds = 1) {
  planner::LinkReport links;
  links.ranks = links.hosts = 4;
  links.network = planner::LinkRates{1e9, 1e-4, 1e-5, {{1 << 20, 9e8}, {0, 9e8}}};
  links.units = {{64 << 20, 8}};
  links.compute_seconds = compute_seconds;
  return links;
}

v1::Plan Committed(const planner::LinkReport& links, PacingPolicy& policy) {
  v1::Plan plan;
  plan.set_etag("tape");
  policy.Fill(links, nullptr, plan);
  plan.set_generation(3);
  plan.mutable_pacing()->set_generation(3);
  return plan;
}

TEST(PacingPolicyTest, WithoutLinksThereIsNoPacing) {
  PacingPolicy policy;
  v1::Plan plan;
  plan.set_etag("tape");
  policy.Fill(std::nullopt, nullptr, plan);
  EXPECT_FALSE(plan.has_pacing());
  EXPECT_EQ(plan.etag(), "tape");
  EXPECT_EQ(policy.Reason(std::nullopt, plan), "");
}

TEST(PacingPolicyTest, LinksThatComeLaterAreAReason) {
  PacingPolicy policy;
  EXPECT_EQ(policy.Reason(Links(), v1::Plan()), "the links between all ranks were measured");
  const v1::Plan plan = Committed(Links(), policy);
  EXPECT_NE(plan.etag(), "tape");
  EXPECT_EQ(policy.Reason(Links(), plan), "");
}

TEST(PacingPolicyTest, APlanKeepsThePacingWhileNothingIsClearlyBetter) {
  PacingPolicy policy;
  const v1::Plan first = Committed(Links(), policy);
  v1::Plan second;
  second.set_etag("tape");
  planner::LinkReport links = Links(1.1);
  links.network->latency_seconds *= 1.1;
  policy.Fill(links, &first, second);
  EXPECT_EQ(second.etag(), first.etag());
  EXPECT_EQ(second.pacing().chunk_bytes(), first.pacing().chunk_bytes());
  // A rank that has not told of its links yet, after a restart, say.
  v1::Plan third;
  third.set_etag("tape");
  policy.Fill(std::nullopt, &first, third);
  EXPECT_EQ(third.etag(), first.etag());
}

TEST(PacingPolicyTest, AnotherPacingMustBeBetterTwiceInARow) {
  PacingPolicy policy;
  const v1::Plan committed = Committed(Links(), policy);
  planner::LinkReport stalls = Links();
  stalls.network->windows = {{256 << 10, 9e8}, {0, 1e8}};
  EXPECT_EQ(policy.Reason(stalls, committed), "");
  EXPECT_EQ(policy.Reason(Links(), committed), "");  // it was a whim
  EXPECT_EQ(policy.Reason(stalls, committed), "");
  EXPECT_NE(policy.Reason(stalls, committed), "");
  v1::Plan next;
  next.set_etag("tape");
  policy.Fill(stalls, &committed, next);
  EXPECT_LT(next.pacing().puts_in_flight(), 256);
  EXPECT_NE(next.etag(), committed.etag());
}

}  // namespace
}  // namespace tidetape::server
