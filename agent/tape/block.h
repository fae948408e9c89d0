// One block of the model as the tape sees it: its name, the names of its parameters, and what the plan in force says about it.
#ifndef TIDETAPE_AGENT_TAPE_BLOCK_H_
#define TIDETAPE_AGENT_TAPE_BLOCK_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "agent/tape/site.h"

namespace tidetape::agent {

// What a plan says about one execution of a block.
struct BlockActions {
  bool save_by_default = false;     // for values that autograd packs and that are not named
  std::unordered_set<Site> save;    // kept from the moment they are made
  std::unordered_set<Site> move;    // the same, then moved to host memory at the end of the block's forward; inputs, too
  std::unordered_set<Site> replay;  // let go although the default says save
  int64_t forward_bytes = 0;        // of its own values, alive at the end of its forward, as predicted
};

// Not thread-safe: used by the thread that runs the block's forward.
class Block {
 public:
  explicit Block(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  // The parameters and buffers by name, below the block. To be called again when wants_names() says so: FSDP swaps parameters.
  void SetNames(const NamedTensors& parameters, const NamedTensors& buffers);
  // Parameters of a unit inside the block, which are whole now and will not be when a replay runs.
  void AddInnerUnit(const NamedTensors& parameters);

  struct Named {
    Site site = 0;  // 0: not known
    bool buffer = false;
    bool inner_unit = false;
  };
  // The parameter or buffer that has this storage. An unknown storage of a leaf is noted, see wants_names().
  Named Find(const c10::StorageImpl* storage, bool leaf);
  const std::string& ParameterName(Site site) const;

  // The names are unknown or out of date.
  bool wants_names() const { return wants_names_; }

  // Sites whose replay was seen to differ; they are kept whatever the plan says.
  std::unordered_set<Site> demoted;

  // For the choice of recordings to audit: the first, and later ones when a structure was new, with a pause between.
  struct Audits {
    std::unordered_set<uint64_t> structures;  // that were audited
    bool wanted = true;
    int32_t executions_since = 0;
    int32_t done = 0;
    int64_t bytes = 0;  // that an audit of the last recording would have held
  } audits;

  // Room that the last recording needed, to reserve at once.
  struct Sizes {
    size_t storages = 0, ops = 0, arguments = 0, values = 0, views = 0, constants = 0, consumed = 0;
  } sizes;

 private:
  const std::string name_;
  void AddNames(const NamedTensors& tensors, bool buffers, bool inner_unit);

  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being used again
    Named named;
  };
  std::unordered_map<const c10::StorageImpl*, Entry> tensors_;
  std::unordered_map<Site, std::string> names_;
  bool wants_names_ = true;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_TAPE_BLOCK_H_
