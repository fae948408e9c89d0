#include "server/store/memory_store.h"

#include "server/store/contract_suite.h"

namespace tidetape::server {
namespace {

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract,
                         testing::Values([](const std::string&) { return std::make_unique<MemoryStore>(); }));

TEST(MemoryStore, SaysThatItForgets) { EXPECT_FALSE(MemoryStore().Durable()); }

}  // namespace
}  // namespace tidetape::server
