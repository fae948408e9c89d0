#include "agent/tape/rng.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstring>
#include <mutex>
#include <utility>

namespace tidetape::agent {
namespace {

// How far a state is followed from the one before it, and from the kept one: a twist costs about a microsecond.
constexpr int32_t kMostTwistsToFollow = 8;
constexpr int32_t kMostTwistsToReplay = 64;

at::CPUGeneratorImpl* AsTwister(const at::Generator& generator) {
  return dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

// Replaces all words of the twister by the next ones, as drawing the last word and one more does, so many times.
void Twist(at::mt19937_data_pod& words, int32_t times) {
  if (times == 0) return;
  at::mt19937 engine;
  for (int32_t i = 0; i < times; ++i) {
    words.left_ = 1;
    engine.set_data(words);
    engine();
    words = engine.data();
  }
}

bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

struct RngStates::Twister {
  at::mt19937_data_pod words;
};

struct RngStates::Scope::CpuState {
  explicit CpuState(at::CPUGeneratorImpl& generator)
      : engine(generator.engine()),
        normal_float(generator.next_float_normal_sample()),
        normal_double(generator.next_double_normal_sample()) {}
  void Restore(at::CPUGeneratorImpl& generator) const {
    generator.set_engine(engine);
    generator.set_next_float_normal_sample(normal_float);
    generator.set_next_double_normal_sample(normal_double);
  }

  at::mt19937 engine;
  std::optional<float> normal_float;
  std::optional<double> normal_double;
};

int32_t RngStates::Note(at::Generator generator) {
  const State* last = nullptr;
  for (auto known = states_.rbegin(); known != states_.rend() && last == nullptr; ++known) {
    if (known->generator == generator) last = &*known;
  }
  const std::lock_guard lock(generator.mutex());
  if (AsTwister(generator) != nullptr) return NoteTwister(generator, last);
  at::Tensor state = generator.get_state();
  if (last != nullptr && SameBytes(last->whole, state)) return static_cast<int32_t>(last - states_.data());
  states_.push_back({generator, std::move(state), nullptr});
  return static_cast<int32_t>(states_.size()) - 1;
}

int32_t RngStates::NoteTwister(const at::Generator& generator, const State* last) {
  at::CPUGeneratorImpl& impl = *AsTwister(generator);
  const at::mt19937_data_pod now = impl.engine().data();
  State state;
  state.generator = generator;
  state.left = now.left_;
  state.next = now.next_;
  state.normal_float = impl.next_float_normal_sample();
  state.normal_double = impl.next_double_normal_sample();
  if (last != nullptr && last->twister->words.seed_ == now.seed_) {
    // The words at the last state: a few twists from the kept ones.
    at::mt19937_data_pod words = last->twister->words;
    Twist(words, last->twists);
    for (int32_t i = 0; i <= kMostTwistsToFollow && last->twists + i <= kMostTwistsToReplay; ++i) {
      Twist(words, i > 0 ? 1 : 0);
      if (words.state_ != now.state_) continue;
      state.twister = last->twister;
      state.twists = last->twists + i;
      if (i == 0 && state.left == last->left && state.next == last->next && state.normal_float == last->normal_float &&
          state.normal_double == last->normal_double) {
        return static_cast<int32_t>(last - states_.data());
      }
      break;
    }
  }
  if (!state.twister) state.twister = std::make_shared<Twister>(Twister{now});
  states_.push_back(std::move(state));
  return static_cast<int32_t>(states_.size()) - 1;
}

void RngStates::Restore(const State& state) {
  at::Generator generator = state.generator;
  if (!state.twister) {
    generator.set_state(state.whole);
    return;
  }
  at::mt19937_data_pod words = state.twister->words;
  Twist(words, state.twists);
  words.left_ = state.left;
  words.next_ = state.next;
  at::mt19937 engine;
  engine.set_data(words);
  at::CPUGeneratorImpl& impl = *AsTwister(generator);
  impl.set_engine(engine);
  impl.set_next_float_normal_sample(state.normal_float);
  impl.set_next_double_normal_sample(state.normal_double);
}

RngStates::Scope::Scope(const RngStates& states, int32_t number) : generator_(states.states_[number].generator) {
  const std::lock_guard lock(generator_.mutex());
  if (at::CPUGeneratorImpl* impl = AsTwister(generator_)) {
    cpu_before_ = std::make_unique<CpuState>(*impl);
  } else {
    before_ = generator_.get_state();
  }
  Restore(states.states_[number]);
}

RngStates::Scope::~Scope() {
  const std::lock_guard lock(generator_.mutex());
  if (cpu_before_ != nullptr) {
    cpu_before_->Restore(*AsTwister(generator_));
  } else {
    generator_.set_state(before_);
  }
}

at::Generator DefaultGenerator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

}  // namespace tidetape::agent
