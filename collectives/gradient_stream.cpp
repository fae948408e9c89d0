#include "collectives/gradient_stream.h"

#include <algorithm>

namespace tidetape::collectives {

GradientStream::GradientStream(const Layout& layout, int32_t unit, int32_t g, std::optional<DType> dtype) {
  const UnitPlace& place = layout.units()[unit];
  for (size_t p = 0; p < place.parameters.size(); ++p) {
    const Parameter& parameter = layout.spec().units[unit].parameters[p];
    const ShardGeometry& geometry = place.parameters[p].geometry;
    if (parameter.frozen || place.parameters[p].storage_of != static_cast<int32_t>(p) || geometry.rows(g) == 0) continue;
    for (int64_t o = 0; o < geometry.outer && geometry.piece_elements(g) > 0; ++o) {
      StreamPiece piece;
      piece.parameter = static_cast<int32_t>(p);
      piece.dtype = dtype.value_or(parameter.gradient_dtype);
      piece.elements = geometry.piece_elements(g);
      piece.stream_element = elements_;
      piece.gradient_element = geometry.storage_element(g, o);
      piece.shard_element = geometry.shard_element(g, o);
      pieces_.push_back(piece);
      elements_ += piece.elements;
    }
  }
}

std::vector<StreamPiece> GradientStream::Cut(int64_t begin, int64_t end) const {
  std::vector<StreamPiece> cut;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                [](int64_t element, const StreamPiece& p) { return element < p.stream_element + p.elements; });
  for (; piece != pieces_.end() && piece->stream_element < end; ++piece) {
    StreamPiece part = *piece;
    const int64_t skipped = std::max<int64_t>(0, begin - part.stream_element);
    part.stream_element += skipped;
    part.gradient_element += skipped;
    part.shard_element += skipped;
    part.elements = std::min(part.elements - skipped, end - part.stream_element);
    if (part.elements > 0) cut.push_back(part);
  }
  return cut;
}

std::vector<StreamMessage> GradientStream::Messages(int64_t begin, int64_t end, int64_t slot_bytes) const {
  std::vector<StreamMessage> messages;
  int64_t filled = slot_bytes;  // of the last message
  for (StreamPiece rest : Cut(begin, end)) {
    const int64_t size = DTypeBytes(rest.dtype);
    while (rest.elements > 0) {
      filled = (filled + size - 1) / size * size;
      if (filled + size > slot_bytes) {
        messages.push_back({rest.stream_element, 0, {}});
        filled = 0;
      }
      StreamPiece piece = rest;
      piece.elements = std::min(rest.elements, (slot_bytes - filled) / size);
      piece.staged_offset = filled;
      filled += piece.elements * size;
      messages.back().elements += piece.elements;
      messages.back().pieces.push_back(piece);
      rest.elements -= piece.elements;
      rest.stream_element += piece.elements;
      rest.gradient_element += piece.elements;
      rest.shard_element += piece.elements;
    }
  }
  return messages;
}

}  // namespace tidetape::collectives
