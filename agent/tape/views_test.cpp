#include "agent/tape/views.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tidetape::agent {
namespace {

bool Alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset() &&
         a.dtype() == b.dtype() && a.key_set() == b.key_set();
}

// Some views of a few storages, many of them alike.
std::vector<at::Tensor> RandomTensors(std::mt19937& random, int count) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    const at::ScalarType dtype = random() % 2 ? at::kFloat : at::kBFloat16;
    at::Tensor tensor = at::zeros({2 + static_cast<int64_t>(random() % 2), 4, 3}, at::TensorOptions().dtype(dtype));
    switch (random() % 6) {
      case 0:
        tensor = tensor.transpose(0, 2);
        break;
      case 1:
        tensor = tensor.select(1, static_cast<int64_t>(random() % 4));
        break;
      case 2:
        tensor = tensor[0][0][0];
        break;
      case 3:
        tensor = tensor.narrow(1, 1, static_cast<int64_t>(random() % 3));
        break;
      case 4:
        tensor = tensor.unsqueeze(0).expand({5, -1, -1, -1});
        break;
      default:
        break;
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

TEST(Views, BuildsWhatItNoted) {
  std::mt19937 random(1);
  Views views;
  FlatIndex index;
  std::vector<std::pair<uint32_t, at::Tensor>> noted;
  for (const at::Tensor& tensor : RandomTensors(random, 300)) {
    const int32_t guess = noted.empty() || random() % 2 ? -1 : static_cast<int32_t>(noted[random() % noted.size()].first);
    noted.emplace_back(views.Note(*tensor.unsafeGetTensorImpl(), guess, index), tensor);
  }
  for (const auto& [view, tensor] : noted) {
    EXPECT_TRUE(Alike(views.Build(view, tensor.storage()), tensor)) << tensor.sizes();
    EXPECT_EQ(views.sizes(view), tensor.sizes());
    EXPECT_EQ(views.dtype(view), tensor.scalar_type());
  }
}

TEST(Views, StoresEachWayOnce) {
  std::mt19937 random(2);
  Views views;
  FlatIndex index;
  std::vector<std::pair<uint32_t, at::Tensor>> noted;
  for (const at::Tensor& tensor : RandomTensors(random, 200)) {
    noted.emplace_back(views.Note(*tensor.unsafeGetTensorImpl(), -1, index), tensor);
  }
  for (const auto& [view, tensor] : noted) {
    for (const auto& [other_view, other] : noted) EXPECT_EQ(view == other_view, Alike(tensor, other));
  }
}

TEST(Views, WhatIsTruncatedIsNotFoundAgain) {
  Views views;
  FlatIndex index;
  const at::Tensor stays = at::zeros({2, 3});
  const at::Tensor goes = at::zeros({4, 5});
  const at::Tensor comes = at::zeros({7});
  const uint32_t first = views.Note(*stays.unsafeGetTensorImpl(), -1, index);
  const size_t size = views.size();
  const uint32_t gone = views.Note(*goes.unsafeGetTensorImpl(), -1, index);
  views.Truncate(size);
  const uint32_t next = views.Note(*comes.unsafeGetTensorImpl(), static_cast<int32_t>(gone), index);
  const uint32_t again = views.Note(*goes.unsafeGetTensorImpl(), static_cast<int32_t>(gone), index);
  EXPECT_TRUE(Alike(views.Build(first, stays.storage()), stays));
  EXPECT_TRUE(Alike(views.Build(next, comes.storage()), comes));
  EXPECT_TRUE(Alike(views.Build(again, goes.storage()), goes));
}

}  // namespace
}  // namespace tidetape::agent
