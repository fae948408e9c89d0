#include "agent/tape/views.h"

#include <c10/core/Storage.h>

#include <algorithm>
#include <utility>

namespace tidetape::agent {
namespace {

constexpr size_t kHeader = 3;  // words before the sizes

int64_t Keys(const c10::TensorImpl& tensor) { return static_cast<int64_t>(tensor.key_set().raw_repr()); }

int64_t DtypeAndDimensions(const c10::TensorImpl& tensor) {
  return static_cast<int64_t>(c10::typeMetaToScalarType(tensor.dtype())) << 32 | static_cast<int64_t>(tensor.sizes().size());
}

size_t Dimensions(const int64_t* words) { return static_cast<size_t>(words[1] & 0xffffffff); }

uint64_t Hash(const c10::TensorImpl& tensor) {
  uint64_t hash = static_cast<uint64_t>(Keys(tensor)) ^ static_cast<uint64_t>(DtypeAndDimensions(tensor));
  const auto add = [&](int64_t word) { hash = (hash ^ static_cast<uint64_t>(word)) * 0x9e3779b97f4a7c15ULL; };
  add(tensor.storage_offset());
  for (const int64_t size : tensor.sizes()) add(size);
  for (const int64_t stride : tensor.strides()) add(stride);
  return hash ^ (hash >> 32);
}

}  // namespace

bool Views::Is(uint32_t view, const c10::TensorImpl& tensor) const {
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  // What was truncated may have been found once.
  if (view + kHeader + 2 * sizes.size() > words_.size()) return false;
  const int64_t* words = words_.data() + view;
  return words[0] == Keys(tensor) && words[1] == DtypeAndDimensions(tensor) && words[2] == tensor.storage_offset() &&
         std::equal(sizes.begin(), sizes.end(), words + kHeader) &&
         std::equal(strides.begin(), strides.end(), words + kHeader + sizes.size());
}

uint32_t Views::Note(const c10::TensorImpl& tensor, int32_t guess, FlatIndex& index) {
  if (guess >= 0 && Is(static_cast<uint32_t>(guess), tensor)) return static_cast<uint32_t>(guess);
  int32_t& known = index[Hash(tensor)];  // plus one
  if (known > 0 && Is(static_cast<uint32_t>(known - 1), tensor)) return static_cast<uint32_t>(known - 1);
  const auto view = static_cast<uint32_t>(words_.size());
  known = static_cast<int32_t>(view) + 1;
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  words_.push_back(Keys(tensor));
  words_.push_back(DtypeAndDimensions(tensor));
  words_.push_back(tensor.storage_offset());
  words_.insert(words_.end(), sizes.begin(), sizes.end());
  words_.insert(words_.end(), strides.begin(), strides.end());
  return view;
}

at::Tensor Views::Build(uint32_t view, c10::Storage storage) const {
  const int64_t* words = words_.data() + view;
  const size_t dimensions = Dimensions(words);
  const auto keys = c10::DispatchKeySet(c10::DispatchKeySet::RAW, static_cast<uint64_t>(words[0]));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype(view)));
  impl->set_sizes_and_strides(c10::IntArrayRef(words + kHeader, dimensions),
                              c10::IntArrayRef(words + kHeader + dimensions, dimensions), words[2]);
  return at::Tensor(std::move(impl));
}

c10::ScalarType Views::dtype(uint32_t view) const { return static_cast<c10::ScalarType>(words_[view + 1] >> 32); }

c10::IntArrayRef Views::sizes(uint32_t view) const {
  const int64_t* words = words_.data() + view;
  return {words + kHeader, Dimensions(words)};
}

}  // namespace tidetape::agent
