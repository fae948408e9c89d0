// What a byte of memory stands for: a byte of a parameter, or an element of a sum of gradients.
//
// Sums are written as trees: a leaf is one rank's gradient of one parameter, an inner node adds two. Equal trees have equal ids.
#ifndef TIDETAPE_COLLECTIVES_VERIFIER_CONTENTS_H_
#define TIDETAPE_COLLECTIVES_VERIFIER_CONTENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/dtype.h"

namespace tidetape::collectives {

inline constexpr int32_t kUndefined = -1;

// Of a range of bytes: byte i of it is byte `base` + i of the value seen as an array of `dtype`. For parameters the array is the
// gathered storage, for sums the whole gradient.
struct Content {
  int32_t value = kUndefined;
  DType dtype = DType::kUInt8;
  int64_t base = 0;

  Content From(int64_t bytes) const { return {value, dtype, base + bytes}; }
  friend bool operator==(const Content&, const Content&) = default;
};

class Values {
 public:
  int32_t Parameter(int32_t run, int32_t parameter) { return Leaf({run, parameter, -1}); }
  int32_t Gradient(int32_t run, int32_t parameter, int32_t rank) { return Leaf({run, parameter, rank}); }
  int32_t Sum(int32_t left, int32_t right);

  // Ranks whose gradients of this very parameter the value adds, ascending, each as often as it is added; -1 stands for anything
  // else.
  std::vector<int32_t> Ranks(int32_t value, int32_t run, int32_t parameter) const;
  // As in "(gradient 0 of rank 1 + gradient 0 of rank 0)".
  std::string Text(int32_t value) const;

 private:
  using LeafKey = std::tuple<int32_t, int32_t, int32_t>;  // run, parameter, rank or -1
  struct Node {
    LeafKey leaf;
    int32_t left = kUndefined, right = kUndefined;
  };
  int32_t Leaf(const LeafKey& key);

  std::vector<Node> nodes_;
  std::map<LeafKey, int32_t> leaves_;
  std::map<std::pair<int32_t, int32_t>, int32_t> sums_;
};

}  // namespace tidetape::collectives

#endif  // TIDETAPE_COLLECTIVES_VERIFIER_CONTENTS_H_
