#include "server/messages/tape_merge.h"

#include <algorithm>

namespace tidetape::server {
namespace {

template <typename List>
bool Equal(const List& a, const List& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

bool SameShape(const v1::BlockTape& a, const v1::BlockTape& b) {
  const auto same_storage = [](const v1::Storage& x, const v1::Storage& y) { return x.site() == y.site() && x.kind() == y.kind(); };
  const auto same_op = [](const v1::Op& x, const v1::Op& y) {
    return x.name() == y.name() && Equal(x.reads(), y.reads()) && Equal(x.writes(), y.writes());
  };
  return std::equal(a.storages().begin(), a.storages().end(), b.storages().begin(), b.storages().end(), same_storage) &&
         std::equal(a.ops().begin(), a.ops().end(), b.ops().begin(), b.ops().end(), same_op) && Equal(a.consumed(), b.consumed()) &&
         a.backward_size() == b.backward_size();
}

bool RaiseBytes(const v1::BlockTape& other, v1::BlockTape& tape) {
  bool grew = false;
  const auto raise = [&grew](int64_t to, auto* message, auto get, auto set) {
    if (to <= (message->*get)()) return;
    (message->*set)(to);
    grew = true;
  };
  for (int i = 0; i < tape.storages_size(); ++i) {
    raise(other.storages(i).bytes(), tape.mutable_storages(i), &v1::Storage::bytes, &v1::Storage::set_bytes);
  }
  for (int i = 0; i < tape.ops_size(); ++i) {
    raise(other.ops(i).replay_workspace_bytes(), tape.mutable_ops(i), &v1::Op::replay_workspace_bytes,
          &v1::Op::set_replay_workspace_bytes);
  }
  for (int i = 0; i < tape.backward_size(); ++i) {
    v1::BackwardEvent* event = tape.mutable_backward(i);
    raise(other.backward(i).gradient_live_bytes(), event, &v1::BackwardEvent::gradient_live_bytes,
          &v1::BackwardEvent::set_gradient_live_bytes);
    raise(other.backward(i).start_live_bytes(), event, &v1::BackwardEvent::start_live_bytes,
          &v1::BackwardEvent::set_start_live_bytes);
  }
  return grew;
}

}  // namespace tidetape::server
