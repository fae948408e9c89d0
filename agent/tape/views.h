// How the tensors of one tape see their storages: key set, dtype, offset, sizes and strides, each way of seeing stored once.
#ifndef TIDETAPE_AGENT_TAPE_VIEWS_H_
#define TIDETAPE_AGENT_TAPE_VIEWS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/tape/flat_index.h"

namespace tidetape::agent {

// Not thread-safe.
class Views {
 public:
  // The number of the way in which `tensor` sees its storage: `guess` if that is it (negative: no guess), else one that `index`
  // knows, else a new one. `index` belongs to these views, and is needed only as long as views are noted.
  uint32_t Note(const c10::TensorImpl& tensor, int32_t guess, FlatIndex& index);

  // A tensor without autograd history over `storage`.
  at::Tensor Build(uint32_t view, c10::Storage storage) const;

  c10::ScalarType dtype(uint32_t view) const;
  c10::IntArrayRef sizes(uint32_t view) const;

  // Views noted since size() was `words` are gone. Numbers before that stay.
  void Truncate(size_t words) { words_.resize(words); }
  void Reserve(size_t words) { words_.reserve(words); }
  size_t size() const { return words_.size(); }
  int64_t Bytes() const { return static_cast<int64_t>(words_.capacity() * sizeof(int64_t)); }

 private:
  bool Is(uint32_t view, const c10::TensorImpl& tensor) const;

  // A view's number is the place of its first word. Words of a view: keys; dtype and dimensions; offset; sizes; strides.
  std::vector<int64_t> words_;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_VIEWS_H_
