// For tests whose store answers at once.
#ifndef TIDETAPE_SERVER_TESTING_EXPECT_STORED_H_
#define TIDETAPE_SERVER_TESTING_EXPECT_STORED_H_

#include <gtest/gtest.h>

#include "server/store/store.h"

namespace tidetape::server {

inline Store::Done ExpectStored() {
  return [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; };
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_TESTING_EXPECT_STORED_H_
