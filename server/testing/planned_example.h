// For tests: the example job with its plan, beside a store and threads of its own.
#ifndef TIDETAPE_SERVER_TESTING_PLANNED_EXAMPLE_H_
#define TIDETAPE_SERVER_TESTING_PLANNED_EXAMPLE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "server/activation/plan_activation.h"
#include "server/common/worker.h"
#include "server/job/job.h"
#include "server/store/memory_store.h"
#include "server/testing/example_job.h"
#include "server/testing/expect_stored.h"
#include "server/testing/fake_rank_channel.h"

namespace tidetape::server {

class PlannedExample {
 public:
  explicit PlannedExample(int32_t ranks = 1, const std::string& name = "example") : name_(name) {
    EXPECT_TRUE(store_.CreateJob(name_).ok());
    auto activation = std::make_shared<PlanActivation>(PlanActivation::Options(), &store_, &clock_, &worker_);
    job_ = std::make_shared<Job>(name_, &store_, &clock_,
                                 [activation](std::shared_ptr<Job> job) { activation->Consider(std::move(job)); });
    for (int32_t rank = 0; rank < ranks; ++rank) {
      channels_.push_back(std::make_shared<FakeRankChannel>());
      EXPECT_TRUE(job_->Connect(Hello(rank, ranks), channels_.back(), ExpectStored()).ok());
    }
  }

  // All ranks send what a plan is made from, and the plan is made.
  void Plan() {
    for (size_t rank = 0; rank < channels_.size(); ++rank) {
      EXPECT_TRUE(job_->AddTape(static_cast<int32_t>(rank), channels_[rank].get(), ExampleTape()).ok());
      Report(static_cast<int32_t>(rank), ExampleReport());
    }
    Settle();
    EXPECT_NE(job_->committed(), nullptr);
  }

  void Report(int32_t rank, const v1::StepReport& report) {
    EXPECT_TRUE(job_->AddReport(rank, channels_[rank].get(), report, ExpectStored()).ok());
  }

  // Until everything that was asked for by now has been considered.
  void Settle() {
    absl::Notification done;
    ASSERT_TRUE(worker_.Post([&done] { done.Notify(); }));
    done.WaitForNotification();
  }

  v1::Hello Hello(int32_t rank, int32_t ranks) const {
    v1::Hello hello = ExampleHello(rank, ranks);
    hello.set_job(name_);
    return hello;
  }

  const std::shared_ptr<Job>& job() const { return job_; }
  FakeRankChannel* channel(int32_t rank) { return channels_[rank].get(); }
  ManualClock& clock() { return clock_; }

 private:
  const std::string name_;
  MemoryStore store_;
  ManualClock clock_;
  Worker worker_{{}};
  std::shared_ptr<Job> job_;
  std::vector<std::shared_ptr<FakeRankChannel>> channels_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_PLANNED_EXAMPLE_H_
