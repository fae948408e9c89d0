// One execution of a block that runs by an option, from the beginning of its forward to the end of its backward.
//
// What the option keeps from forward to backward is what the forward leaves alive beside its outputs. In the step profile it counts
// as planned bytes, as saved storages of tapes do.
#ifndef TIDETAPE_AGENT_SESSION_OPTION_EXECUTION_H_
#define TIDETAPE_AGENT_SESSION_OPTION_EXECUTION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace tidetape::agent {

class OptionExecution;

class OptionObserver {
 public:
  virtual ~OptionObserver() = default;
  virtual void OnOptionForwardEnd(const OptionExecution& execution) = 0;
  // Before the step profile hears of it.
  virtual void OnOptionBackwardBegin(const std::shared_ptr<OptionExecution>& execution) = 0;
  // Returns whether other executions wait for their backward.
  virtual bool OnOptionBackwardEnd(const OptionExecution& execution) = 0;
  // Its graph is gone without a backward. `begun`: its forward had ended.
  virtual void OnOptionAbandoned(bool begun) = 0;
};

// Not thread-safe; forward and backward run one after the other.
class OptionExecution : public std::enable_shared_from_this<OptionExecution> {
 public:
  // `first`: of this option in this block.
  OptionExecution(std::shared_ptr<OptionObserver> observer, std::string block, int32_t position, int32_t option, bool first);
  ~OptionExecution();
  OptionExecution(const OptionExecution&) = delete;

  // `output_bytes`: of the storages that the forward made and gave back.
  void EndForward(int64_t output_bytes);
  // Again for another pass through the same graph: only the first one counts.
  void BeginBackward();
  // All of the block's backward has run. Called again it does nothing.
  void EndBackward();

  const std::string& block() const { return block_; }
  int32_t position() const { return position_; }
  int32_t option() const { return option_; }
  bool first() const { return first_; }
  int64_t saved_bytes() const { return saved_bytes_; }
  double seconds() const { return forward_seconds_ + backward_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kForward, kWaiting, kBackward, kOver };

  const std::shared_ptr<OptionObserver> observer_;
  const std::string block_;
  const int32_t position_;
  const int32_t option_;
  const bool first_;
  Stage stage_ = Stage::kForward;
  int64_t live_before_ = 0;
  int64_t saved_bytes_ = 0;
  Clock::time_point begun_;
  double forward_seconds_ = 0;
  double backward_seconds_ = 0;
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_SESSION_OPTION_EXECUTION_H_
