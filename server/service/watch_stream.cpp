#include "server/service/watch_stream.h"

#include <utility>

#include "net/error_info.h"

namespace tidetape::server {

WatchStream* WatchStream::Start(std::shared_ptr<Job> job, StreamSet* streams, ServerMetrics* metrics) {
  std::shared_ptr<WatchStream> stream(new WatchStream(std::move(job), streams, metrics));
  stream->self_ = stream;
  if (!streams->Add(stream)) {
    stream->Close(absl::UnavailableError("the server is about to stop; connect again later"));
    return stream.get();
  }
  stream->job_->events().Watch(stream);
  absl::MutexLock lock(&stream->mutex_);
  stream->WriteNext();
  return stream.get();
}

void WatchStream::OnEvent(const v1::JobEvent& event) {
  absl::MutexLock lock(&mutex_);
  if (events_.size() == kWaitingEvents) {
    events_.pop_front();
    ++dropped_;
    metrics_->DroppedEvent();
  }
  events_.push_back(event);
  summary_waits_ = true;
  WriteNext();
}

void WatchStream::OnProgress() {
  absl::MutexLock lock(&mutex_);
  summary_waits_ = true;
  WriteNext();
}

void WatchStream::WriteNext() {
  if (writing_ || finished_) return;
  response_.Clear();
  if (!events_.empty()) {
    *response_.mutable_event() = std::move(events_.front());
    events_.pop_front();
  } else if (std::exchange(summary_waits_, false)) {
    *response_.mutable_summary() = job_->Summary();
  } else {
    return;
  }
  response_.set_dropped(std::exchange(dropped_, 0));
  writing_ = true;
  StartWrite(&response_);
}

void WatchStream::OnWriteDone(bool ok) {
  if (!ok) {
    Close(absl::CancelledError("the watcher is gone"));
    return;
  }
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  WriteNext();
}

void WatchStream::Drain(absl::Duration reconnect_after) {
  Close(absl::UnavailableError("the server is about to stop; watch again in " + absl::FormatDuration(reconnect_after)));
}

void WatchStream::Close(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(finished_, true)) return;
  Finish(net::ToGrpc(status));
}

void WatchStream::OnCancel() { Close(absl::CancelledError("the watcher is gone")); }

void WatchStream::OnDone() {
  streams_->Remove(this);
  self_.reset();
}

}  // namespace tidetape::server
