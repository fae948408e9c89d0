#include "server/ctl/client.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/ctl/closest_name.h"

namespace tidetape::ctl {

Client::Client(std::string server, absl::Duration timeout, net::ClientCredentials credentials)
    : server_(std::move(server)), timeout_(timeout), credentials_(std::move(credentials)) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A watch would not notice otherwise that the server is gone.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetMaxReceiveMessageSize(256 << 20);
  const auto secured = credentials_.ForChannel(arguments);
  stub_ = v1::PlannerService::NewStub(grpc::CreateCustomChannel(server_, secured, arguments));
}

void Client::SetDeadline(absl::Duration timeout, grpc::ClientContext& context) {
  if (timeout == absl::InfiniteDuration()) return;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

absl::Status Client::Explain(const absl::Status& status, const std::string& job) {
  // What programs read stays; people are told more.
  const auto saying = [&status](const std::string& message) {
    absl::Status said(status.code(), message);
    status.ForEachPayload([&said](absl::string_view type, const absl::Cord& payload) { said.SetPayload(type, payload); });
    return said;
  };
  if (absl::IsUnavailable(status)) {
    return saying(absl::StrCat("no answer from ", server_, ": ", status.message(),
                               "; is tidetape-server running there? Use --server, TIDETAPE_SERVER or a context for another"));
  }
  if (absl::IsDeadlineExceeded(status)) {
    return saying(absl::StrCat(server_, " did not answer within ", absl::FormatDuration(timeout_), "; use --timeout for more"));
  }
  const auto info = net::ErrorInfoOf(status);
  if (!info.has_value() || info->reason() != "JOB_NOT_FOUND") return status;
  std::vector<std::string> names;
  if (const auto jobs = Call(&v1::PlannerService::Stub::ListJobs, v1::ListJobsRequest()); jobs.ok()) {
    for (const auto& known : jobs->jobs()) names.push_back(known.job());
  }
  const std::string closest = ClosestName(job, names);
  return closest.empty() ? status : saying(absl::StrCat(status.message(), ". Did you mean '", closest, "'?"));
}

absl::Status Client::Watch(const std::string& job, absl::Duration duration,
                           const std::function<bool(const v1::WatchJobResponse&)>& each) {
  grpc::ClientContext context;
  SetDeadline(duration, context);
  credentials_.AddToken(context);
  v1::WatchJobRequest request;
  request.set_job(job);
  const auto reader = stub_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  while (reader->Read(&response)) {
    if (each(response)) continue;
    context.TryCancel();
    reader->Finish();
    return absl::OkStatus();
  }
  const grpc::Status status = reader->Finish();
  // The time to watch is over, which is what was asked for.
  if (status.error_code() == grpc::DEADLINE_EXCEEDED) return absl::OkStatus();
  return status.ok() ? absl::OkStatus() : Explain(net::FromGrpc(status), job);
}

}  // namespace tidetape::ctl
