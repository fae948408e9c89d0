#include "net/error_info.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace tidetape::net {
namespace {

// The message is ErrorInfo's twin, under the type that gRPC's tools know.
constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kDomain[] = "tidetape";

}  // namespace

absl::Status WithErrorInfo(absl::Status status, const std::string& reason, const std::map<std::string, std::string>& metadata) {
  v1::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorStatus details;
  status.ForEachPayload([&details](absl::string_view type_url, const absl::Cord& payload) {
    google::protobuf::Any* detail = details.add_details();
    detail->set_type_url(std::string(type_url));
    detail->set_value(std::string(payload));
  });
  const auto code = static_cast<grpc::StatusCode>(status.code());
  std::string message(status.message());
  if (details.details().empty()) return grpc::Status(code, message);
  details.set_code(code);
  details.set_message(message);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::ErrorStatus details;
  if (result.ok() || !details.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& detail : details.details()) result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
  return result;
}

std::optional<v1::ErrorInfo> ErrorInfoOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorInfoUrl);
  v1::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  return info;
}

std::optional<v1::ErrorInfo> ErrorInfoOf(const grpc::Status& status) { return ErrorInfoOf(FromGrpc(status)); }

}  // namespace tidetape::net
