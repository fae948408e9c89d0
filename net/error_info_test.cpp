#include "net/error_info.h"

#include <gtest/gtest.h>

namespace tidetape::net {
namespace {

TEST(ErrorInfo, TravelsAsADetailThatGrpcsToolsKnow) {
  const absl::Status status = WithErrorInfo(absl::NotFoundError("no job 'a'"), "JOB_NOT_FOUND", {{"job", "a"}});
  const grpc::Status sent = ToGrpc(status);
  EXPECT_EQ(sent.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(sent.error_message(), "no job 'a'");

  // By hand: google.rpc.Status { code = 1, message = 2, details = 3 } of Any { type_url = 1, value = 2 }.
  v1::ErrorStatus details;
  ASSERT_TRUE(details.ParseFromString(sent.error_details()));
  EXPECT_EQ(details.code(), 5);
  EXPECT_EQ(details.message(), "no job 'a'");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  // ErrorInfo { reason = 1, domain = 2, metadata = 3 }.
  EXPECT_EQ(details.details(0).value(),
            "\x0a\x0dJOB_NOT_FOUND\x12\x08tidetape\x1a\x08\x0a\x03job\x12\x01"
            "a");

  const absl::Status received = FromGrpc(sent);
  EXPECT_EQ(received, status);
  ASSERT_TRUE(ErrorInfoOf(received).has_value());
  EXPECT_EQ(ErrorInfoOf(received)->reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(ErrorInfoOf(sent)->metadata().at("job"), "a");
}

TEST(ErrorInfo, ThereNeedBeNone) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  const grpc::Status plain = ToGrpc(absl::AbortedError("why"));
  EXPECT_EQ(plain.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(plain.error_details().empty());
  EXPECT_FALSE(ErrorInfoOf(plain).has_value());
  EXPECT_FALSE(ErrorInfoOf(grpc::Status(grpc::StatusCode::ABORTED, "why", "no message at all")).has_value());
}

}  // namespace
}  // namespace tidetape::net
