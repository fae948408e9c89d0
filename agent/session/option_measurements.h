// What was measured of blocks that run in one of several ways, their options, instead of with a tape.
//
// Equal blocks share what is measured. While an option has too few samples one block of its kind tries it, the last one, so that no
// more than one block at a time keeps more than the leanest option does; all others run by the first option.
#ifndef TIDETAPE_AGENT_SESSION_OPTION_MEASUREMENTS_H_
#define TIDETAPE_AGENT_SESSION_OPTION_MEASUREMENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/link/tt_link.h"

namespace tidetape::agent {

// One execution of a block by one of its options.
struct OptionSample {
  int32_t option = 0;
  int64_t saved_bytes = 0;     // from forward to backward
  int64_t forward_bytes = 0;   // the most in forward, above its start, saved bytes included
  int64_t own_peak_bytes = 0;  // in backward, above the base, saved bytes included
  double seconds = 0;          // forward and backward
};

// Not thread-safe.
class OptionMeasurements {
 public:
  // The block's options from the leanest on. Blocks of one `kind` share what is measured, and have one structure, which the planner
  // knows them by, and equal options. Once a block, in order of execution.
  void AddBlock(const std::string& block, uint64_t kind, uint64_t structure, const std::vector<std::string>& labels);
  void RemoveBlock(const std::string& block);

  bool Has(const std::string& block) const { return kinds_.count(block) > 0; }
  size_t NumOptions(const std::string& block) const { return kinds_.at(block)->options.size(); }
  uint64_t Structure(const std::string& block) const { return kinds_.at(block)->structure; }

  // What the block runs by in this step where no plan says it.
  int32_t Trial(const std::string& block) const;
  // Chooses what is tried in the next step.
  void NextStep();

  // True once for each option of a block: its first execution compiles and fills caches, so it is no sample.
  bool FirstExecution(const std::string& block, int32_t option);

  void Add(const std::string& block, const OptionSample& sample);

  // Every option has samples enough.
  bool measured() const;

  // Seconds of the execution beyond those of the fastest option; 0 while that is not known.
  double ExtraSeconds(const std::string& block, double seconds) const;
  // The most that the option was seen to save.
  int64_t SavedBytes(const std::string& block, int32_t option) const { return kinds_.at(block)->options[option].saved_bytes; }

  // Bytes in the block's forward above its start, without saved ones: of the option that needs the fewest, and the most.
  std::pair<int64_t, int64_t> ForwardBytes(const std::string& block) const;

  // As the planner takes them; labels are borrowed. An own peak is raised to what the option's forward reaches above the backward's
  // base, where it is given how far above that the forward begins: with equally much saved before, both meet the same limit.
  std::vector<tt_block_option> Report(const std::string& block, std::optional<int64_t> forward_start_bytes) const;

  // For people, a line an option; `chosen` is marked.
  std::string ToText(const std::string& block, int32_t chosen) const;
  // The blocks, ascending.
  std::vector<std::string> Blocks() const;

 private:
  struct Option {
    std::string label;
    int64_t saved_bytes = 0;  // the most seen
    int64_t forward_bytes = 0;
    int64_t own_peak_bytes = 0;
    std::vector<double> seconds;  // the newest samples
    size_t samples = 0;

    double MedianSeconds() const;
  };
  struct Kind {
    uint64_t number = 0;
    uint64_t structure = 0;
    std::vector<Option> options;
    std::vector<std::string> blocks;
    int32_t trial = 0;  // of the last block

    bool measured() const;
    double FastestSeconds() const;
  };

  std::map<uint64_t, std::shared_ptr<Kind>> numbered_;
  std::map<std::string, std::shared_ptr<Kind>> kinds_;  // by block
  std::map<std::string, std::set<int32_t>> executed_;   // options, by block
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_OPTION_MEASUREMENTS_H_
