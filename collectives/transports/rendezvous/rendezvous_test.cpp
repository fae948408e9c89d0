#include "collectives/transports/rendezvous/rendezvous.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing/rank_processes.h"
#include "collectives/transports/rendezvous/file_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidetape::collectives {
namespace {

using ::testing::HasSubstr;

class RendezvousTest : public ::testing::Test {
 protected:
  GroupOptions Options(int rank) const { return {.rank = rank, .size = 3, .arena_bytes = 4096, .layout_hash = "abc"}; }

  std::vector<RankOutcome> MeetAll(const std::function<absl::Status(FileStore& store, int rank)>& body) {
    return RunRanks(3, absl::Seconds(20), [&](int rank) {
      FileStore store(folder_.path());
      return body(store, rank);
    });
  }

  // All ranks meet, with the options of some changed.
  std::vector<RankOutcome> MeetWith(const std::function<void(GroupOptions&)>& change, absl::Duration limit = absl::Seconds(10)) {
    return MeetAll([&](FileStore& store, int rank) {
      GroupOptions options = Options(rank);
      change(options);
      return Meet(store, options, {}, absl::Now() + limit).status();
    });
  }

  TemporaryFolder folder_;
};

TEST_F(RendezvousTest, AllRanksReadTheSameRoster) {
  const auto outcomes = MeetAll([&](FileStore& store, int rank) -> absl::Status {
    const std::string odd("a\tb\n\0c", 6);
    auto roster =
        Meet(store, Options(rank), {odd, absl::StrCat("shm ", rank), absl::StrCat("tcp ", rank)}, absl::Now() + absl::Seconds(10));
    if (!roster.ok()) return roster.status();
    for (int other = 0; other < 3; ++other) {
      const Member& member = roster->members[static_cast<size_t>(other)];
      if (member.host_id != odd || member.shm_address != absl::StrCat("shm ", other) ||
          member.tcp_address != absl::StrCat("tcp ", other)) {
        return absl::InternalError("wrong record");
      }
    }
    return absl::UnknownError(std::string(roster->token.begin(), roster->token.end()));
  });
  // The token that rank 0 drew, the same on all ranks.
  EXPECT_EQ(outcomes[0].status.message().size(), 32);
  EXPECT_EQ(outcomes[1].status.message(), outcomes[0].status.message());
  EXPECT_EQ(outcomes[2].status.message(), outcomes[0].status.message());
}

TEST_F(RendezvousTest, ATokenFromOutsideStaysOutOfTheStore) {
  const auto outcomes = MeetWith([](GroupOptions& options) { options.token = "secret"; });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
  FileStore store(folder_.path());
  EXPECT_FALSE(store.Wait("tidetape/token", absl::Now()).ok());
  for (int rank = 0; rank < 3; ++rank) {
    const auto record = store.Wait(absl::StrCat("tidetape/member/", rank), absl::Now());
    ASSERT_TRUE(record.ok());
    EXPECT_THAT(*record, ::testing::Not(HasSubstr("secret")));
  }
}

TEST_F(RendezvousTest, ADifferentLayoutIsNamedOnAllRanksWithBothHashes) {
  const auto outcomes = MeetWith([](GroupOptions& options) {
    if (options.rank == 1) options.layout_hash = "xyz";
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition) << outcome;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("rank 1 has layout hash xyz, rank 0 has abc"));
  }
}

TEST_F(RendezvousTest, OtherDifferencesAreNamed) {
  const std::vector<std::pair<std::function<void(GroupOptions&)>, std::string>> cases = {
      {[](GroupOptions& options) { options.arena_bytes = 8192; }, "rank 2 has arena size 8192, rank 0 has 4096"},
      {[](GroupOptions& options) { options.signals = 3; }, "rank 2 has signal count 3, rank 0 has 64"},
      {[](GroupOptions& options) {
         options.shared_region = {0, 4096};
       },
       "rank 2 has shared region 0+4096, rank 0 has 0+0"},
  };
  for (const auto& [change, message] : cases) {
    const auto outcomes = MeetWith([&, change = change, name = message.size()](GroupOptions& options) {
      options.name = absl::StrCat("group ", name);
      if (options.rank == 2) change(options);
    });
    for (const auto& outcome : outcomes) EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(message));
  }
}

TEST_F(RendezvousTest, AMissingRankIsNamedAtTheDeadline) {
  const auto outcomes = MeetAll([&](FileStore& store, int rank) {
    if (rank == 2) return absl::OkStatus();
    return Meet(store, Options(rank), {}, absl::Now() + absl::Milliseconds(200)).status();
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(outcomes[static_cast<size_t>(rank)].status.message()), HasSubstr("rank 2 has not come"));
  }
}

TEST_F(RendezvousTest, ARankThatCannotTakePartSaysWhy) {
  const auto outcomes = MeetAll([&](FileStore& store, int rank) {
    if (rank != 2) return Meet(store, Options(rank), {}, absl::Now() + absl::Seconds(15)).status();
    Decline(store, Options(rank), absl::ResourceExhaustedError("no memory"));
    return absl::OkStatus();
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(outcomes[static_cast<size_t>(rank)].status.message()),
                HasSubstr("rank 2 cannot take part: RESOURCE_EXHAUSTED: no memory"));
  }
}

TEST_F(RendezvousTest, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_TRUE(ValidateOptions(Options(0)).ok());
  const std::vector<std::function<void(GroupOptions&)>> cases = {
      [](GroupOptions& options) { options.rank = 3; },
      [](GroupOptions& options) { options.rank = -1; },
      [](GroupOptions& options) { options.signals = 0; },
      [](GroupOptions& options) { options.arena_bytes = 0; },
      [](GroupOptions& options) {
        options.shared_region = {1, 4096};
      },
      [](GroupOptions& options) {
        options.shared_region = {4096, 4096};
      },
      [](GroupOptions& options) {
        options.shared_region = {uint64_t{0} - 4096, 8192};
      },
  };
  for (const auto& change : cases) {
    GroupOptions options = Options(0);
    change(options);
    EXPECT_EQ(ValidateOptions(options).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TokenTest, ComparesAllBytes) {
  Token a = {};
  Token b = {};
  EXPECT_TRUE(SameToken(a, b));
  b.back() = 1;
  EXPECT_FALSE(SameToken(a, b));
}

TEST(FileStoreTest, WaitsForAValueAndNeverSeesHalfOfIt) {
  TemporaryFolder folder;
  const std::string value(1 << 20, 'x');
  const auto outcomes = RunRanks(2, absl::Seconds(20), [&](int rank) {
    FileStore store(folder.path());
    if (rank == 0) return store.Set("a/b", value);
    const auto read = store.Wait("a/b", absl::Now() + absl::Seconds(10));
    if (!read.ok()) return read.status();
    return *read == value ? absl::OkStatus() : absl::DataLossError("half a value");
  });
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome.status.ok()) << outcome;
}

TEST(FileStoreTest, NamesTheKeyThatNobodySet) {
  TemporaryFolder folder;
  FileStore store(folder.path());
  EXPECT_EQ(store.Wait("never", absl::Now()).status(), absl::DeadlineExceededError("nobody has set never"));
  FileStore nowhere(folder.path() + "/missing");
  EXPECT_EQ(nowhere.Set("key", "value").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tidetape::collectives
