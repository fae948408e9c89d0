#include "server/store/sqlite_store.h"

#include <sys/mount.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/store/contract_suite.h"
#include "server/store/durable_contract_suite.h"
#include "server/store/schema_suite.h"
#include "server/store/sqlite_database.h"

namespace tidetape::server {
namespace {

using testing::HasSubstr;

std::string PathOf(const std::string& place) { return testing::TempDir() + "/" + place + "/server.db"; }

absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& place) {
  static SystemClock clock;
  return OpenSqliteStore(PathOf(place), &clock);
}

const OpenStore open_store = [](const std::string& place) {
  auto store = Open(place);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
};

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, testing::Values(open_store));
INSTANTIATE_TEST_SUITE_P(Sqlite, DurableStoreContract, testing::Values(open_store));

INSTANTIATE_TEST_SUITE_P(Sqlite, SchemaSuite, testing::Values([](const std::string& place) -> std::unique_ptr<SqlDatabase> {
                           std::filesystem::create_directories(testing::TempDir() + "/" + place);
                           return SqliteDatabase::Open(PathOf(place), nullptr).value();
                         }));

TEST(SqliteStore, SynchronisesEveryCommit) {
  const auto database = SqliteDatabase::Open(testing::TempDir() + "/sync.db", nullptr).value();
  EXPECT_EQ(database->Execute("PRAGMA synchronous", {}).value().rows[0][0].integer, 2);  // FULL
  EXPECT_EQ(database->Execute("PRAGMA journal_mode", {}).value().rows[0][0].data, "wal");
}

TEST(SqliteStore, BelongsToOneServer) {
  const auto store = Open("one");
  ASSERT_TRUE(store.ok());
  const absl::Status second = Open("one").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr("is held by another tidetape-server (process " + std::to_string(getpid())));
}

TEST(SqliteStore, KeepsItsFolderToItsUser) {
  ASSERT_TRUE(Open("private").ok());
  const auto permissions = std::filesystem::status(testing::TempDir() + "/private").permissions();
  EXPECT_EQ(permissions, std::filesystem::perms::owner_all);
}

TEST(SqliteStore, RefusesNetworkFileSystems) {
  SystemClock clock;
  const absl::Status status =
      OpenSqliteStore(PathOf("nfs"), &clock, /*observer=*/nullptr, [](const std::string&) -> absl::StatusOr<int64_t> {
        return 0x6969;
      }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is on a network file system (NFS)"));
  EXPECT_FALSE(std::filesystem::exists(PathOf("nfs")));
  EXPECT_EQ(NetworkFileSystem(0xEF53), "");      // ext4
  EXPECT_EQ(NetworkFileSystem(0x58465342), "");  // XFS
  EXPECT_EQ(NetworkFileSystem(0x9123683E), "");  // btrfs
  EXPECT_EQ(NetworkFileSystem(0x01021994), "");  // tmpfs
  EXPECT_EQ(NetworkFileSystem(0xFF534D42), "CIFS");
  // As a 32-bit field that was sign-extended shows it.
  EXPECT_EQ(NetworkFileSystem(static_cast<int32_t>(0xFF534D42)), "CIFS");
}

TEST(SqliteStore, SaysThatTheFileIsDamaged) {
  std::filesystem::create_directories(testing::TempDir() + "/damaged");
  std::ofstream(PathOf("damaged")) << std::string(8192, 'x');
  const absl::Status status = Open("damaged").status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("restore a backup"));
}

TEST(SqliteStore, SaysWhereAFolderCannotBeMade) {
  std::ofstream(testing::TempDir() + "/plain") << "a file";
  const absl::Status status = Open("plain").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("plain"));
}

// A real full disk: a file system of 1 MiB, where the sandbox lets the test mount one.
TEST(SqliteStore, SurvivesAFullDisk) {
  const std::string folder = testing::TempDir() + "/full";
  std::filesystem::create_directories(folder);
  if (mount("tidetape-test", folder.c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "this user may not mount";
  {
    const auto store = Open("full");
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->CreateJob("a").ok());
    std::ofstream filler(folder + "/filler");
    for (int i = 0; i < 1024 && filler.good(); ++i) filler << std::string(1024, 'x') << std::flush;
    v1::BlockTape tape;
    tape.set_structure_hash(1);
    tape.set_name(std::string(200'000, 'x'));
    const absl::Status full = (*store)->PutTape("a", tape, Store::KnownCosts::kKeep);
    EXPECT_TRUE(absl::IsUnavailable(full)) << full;
    EXPECT_THAT(std::string(full.message()), HasSubstr("free space there"));
    // What was there can be read, and once there is room all goes on.
    EXPECT_EQ((*store)->ListJobs().value().size(), 1);
    filler.close();
    std::filesystem::remove(folder + "/filler");
    EXPECT_TRUE((*store)->PutTape("a", tape, Store::KnownCosts::kKeep).ok());
    EXPECT_TRUE((*store)->Check().ok());
  }
  umount(folder.c_str());
}

}  // namespace
}  // namespace tidetape::server
