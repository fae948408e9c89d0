// The gradient rows of one shard as one sequence of elements: pieces of parameters one after the other, in the order of the unit.
#ifndef TIDETAPE_COLLECTIVES_GRADIENT_STREAM_H_
#define TIDETAPE_COLLECTIVES_GRADIENT_STREAM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/layout.h"

namespace tidetape::collectives {

// Elements that lie together in the gradient, in the shard and in the stream.
struct StreamPiece {
  int32_t parameter = 0;
  DType dtype = DType::kBFloat16;
  int64_t elements = 0;
  int64_t stream_element = 0;    // position of the first one in the stream,
  int64_t gradient_element = 0;  // in the whole gradient,
  int64_t shard_element = 0;     // and in the shard
  int64_t staged_offset = 0;     // bytes from the start of the message's slot; 0 outside messages
};

// A part of the stream that fits a staging slot, each piece aligned to its element size.
struct StreamMessage {
  int64_t stream_element = 0;
  int64_t elements = 0;
  std::vector<StreamPiece> pieces;
};

class GradientStream {
 public:
  // Of shard g. `dtype`, where given, is that of all gradients.
  GradientStream(const Layout& layout, int32_t unit, int32_t g, std::optional<DType> dtype);

  int64_t elements() const { return elements_; }
  // The pieces of stream elements [begin, end), cut at both; `end` may lie behind the last element.
  std::vector<StreamPiece> Cut(int64_t begin, int64_t end) const;
  // The same in messages of at most slot_bytes.
  std::vector<StreamMessage> Messages(int64_t begin, int64_t end, int64_t slot_bytes) const;

 private:
  std::vector<StreamPiece> pieces_;
  int64_t elements_ = 0;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_GRADIENT_STREAM_H_
