// What the tests of contract_suite.h begin with: a store, and messages to put into it.
#ifndef TIDETAPE_SERVER_STORE_CONTRACT_FIXTURE_H_
#define TIDETAPE_SERVER_STORE_CONTRACT_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "server/store/store.h"

namespace tidetape::server {

// Opens the store at a place: a name that is new in each test, of letters and digits.
using OpenStore = std::function<std::shared_ptr<Store>(const std::string& place)>;

class StoreContract : public testing::TestWithParam<OpenStore> {
 protected:
  StoreContract() : store_(GetParam()(place_)) {}

  static v1::Plan MakePlan(const std::string& job, int64_t generation) {
    v1::Plan plan;
    plan.set_job(job);
    plan.set_generation(generation);
    plan.set_etag(std::to_string(generation));
    return plan;
  }

  static v1::BlockTape MakeTape(uint64_t hash, int64_t bytes = 8) {
    v1::BlockTape tape;
    tape.set_structure_hash(hash);
    tape.add_storages()->set_bytes(bytes);
    return tape;
  }

  static v1::TapeCosts MakeCosts(uint64_t hash, double seconds) {
    v1::TapeCosts costs;
    costs.set_structure_hash(hash);
    costs.add_cost_seconds(seconds);
    return costs;
  }

  static RankUpdate MakeReport(const std::string& incarnation, int32_t rank, int64_t step) {
    RankUpdate update;
    update.incarnation = incarnation;
    update.rank = rank;
    update.heard = absl::FromUnixMicros(1'700'000'000'000'000 + step);
    update.report.emplace().set_step(step);
    return update;
  }

  absl::Status put_tape(const std::string& job, const v1::BlockTape& tape) {
    return store_->PutTape(job, tape, Store::KnownCosts::kKeep);
  }

  // Waits for the outcome.
  static absl::Status UpdateRank(Store& store, const std::string& job, const RankUpdate& update) {
    absl::Status outcome;
    absl::Notification done;
    store.UpdateRank(job, update, [&](const absl::Status& status) {
      outcome = status;
      done.Notify();
    });
    done.WaitForNotification();
    return outcome;
  }
  absl::Status UpdateRank(const std::string& job, const RankUpdate& update) { return UpdateRank(*store_, job, update); }

  // Job "a" with incarnation "i" of two ranks.
  void StartJob() {
    ASSERT_TRUE(store_->CreateJob("a").ok());
    ASSERT_TRUE(store_->AddIncarnation("a", {.id = "i", .world_size = 2}).ok());
  }

  // As after a restart of the server.
  void Reopen() {
    store_.reset();
    store_ = GetParam()(place_);
  }

 private:
  static std::string NewPlace() {
    static int places = 0;
    return "place" + std::to_string(getpid()) + "n" + std::to_string(++places);
  }

 protected:
  const std::string place_ = NewPlace();
  std::shared_ptr<Store> store_;
};

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_STORE_CONTRACT_FIXTURE_H_
