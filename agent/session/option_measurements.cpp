#include "agent/session/option_measurements.h"

#include <algorithm>
#include <cstdio>

namespace tidetape::agent {
namespace {

// An option counts as measured with so many samples; as many of the newest as kNewest tell its seconds.
constexpr size_t kEnoughSamples = 3;
constexpr size_t kNewest = 32;

}  // namespace

double OptionMeasurements::Option::MedianSeconds() const {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

bool OptionMeasurements::Kind::measured() const {
  return std::all_of(options.begin(), options.end(), [](const Option& option) { return option.samples >= kEnoughSamples; });
}

double OptionMeasurements::Kind::FastestSeconds() const {
  double fastest = options.front().MedianSeconds();
  for (const Option& option : options) fastest = std::min(fastest, option.MedianSeconds());
  return fastest;
}

void OptionMeasurements::AddBlock(const std::string& block, uint64_t number, uint64_t structure,
                                  const std::vector<std::string>& labels) {
  std::shared_ptr<Kind>& kind = numbered_[number];
  if (kind == nullptr) {
    kind = std::make_shared<Kind>();
    kind->number = number;
    kind->structure = structure;
    for (const std::string& label : labels) kind->options.emplace_back().label = label;
  }
  kind->blocks.push_back(block);
  kinds_[block] = kind;
}

void OptionMeasurements::RemoveBlock(const std::string& block) {
  const auto found = kinds_.find(block);
  if (found == kinds_.end()) return;
  std::vector<std::string>& blocks = found->second->blocks;
  blocks.erase(std::remove(blocks.begin(), blocks.end(), block), blocks.end());
  if (blocks.empty()) numbered_.erase(found->second->number);
  kinds_.erase(found);
}

int32_t OptionMeasurements::Trial(const std::string& block) const {
  const Kind& kind = *kinds_.at(block);
  return block == kind.blocks.back() ? kind.trial : 0;
}

void OptionMeasurements::NextStep() {
  for (const auto& [number, kind] : numbered_) {
    kind->trial = 0;
    if (kind->measured()) continue;
    // What the block has never run by comes first, so that all that compiles is over early; then whatever has the fewest samples.
    const std::set<int32_t>& executed = executed_[kind->blocks.back()];
    const auto rank = [&](int32_t option) {
      return executed.count(option) == 0 ? -1 : static_cast<int64_t>(kind->options[option].samples);
    };
    for (int32_t option = 1; option < static_cast<int32_t>(kind->options.size()); ++option) {
      if (rank(option) < rank(kind->trial)) kind->trial = option;
    }
  }
}

bool OptionMeasurements::FirstExecution(const std::string& block, int32_t option) { return executed_[block].insert(option).second; }

void OptionMeasurements::Add(const std::string& block, const OptionSample& sample) {
  Option& option = kinds_.at(block)->options[sample.option];
  option.saved_bytes = std::max(option.saved_bytes, sample.saved_bytes);
  option.forward_bytes = std::max(option.forward_bytes, sample.forward_bytes);
  option.own_peak_bytes = std::max(option.own_peak_bytes, sample.own_peak_bytes);
  if (option.seconds.size() < kNewest) {
    option.seconds.push_back(sample.seconds);
  } else {
    option.seconds[option.samples % kNewest] = sample.seconds;
  }
  ++option.samples;
}

bool OptionMeasurements::measured() const {
  return std::all_of(numbered_.begin(), numbered_.end(), [](const auto& entry) { return entry.second->measured(); });
}

double OptionMeasurements::ExtraSeconds(const std::string& block, double seconds) const {
  const Kind& kind = *kinds_.at(block);
  return kind.measured() ? std::max(0.0, seconds - kind.FastestSeconds()) : 0;
}

std::pair<int64_t, int64_t> OptionMeasurements::ForwardBytes(const std::string& block) const {
  std::pair<int64_t, int64_t> bytes(INT64_MAX, 0);
  for (const Option& option : kinds_.at(block)->options) {
    const int64_t beside = std::max<int64_t>(0, option.forward_bytes - option.saved_bytes);
    bytes = {std::min(bytes.first, beside), std::max(bytes.second, beside)};
  }
  return bytes;
}

std::vector<tt_block_option> OptionMeasurements::Report(const std::string& block,
                                                        std::optional<int64_t> forward_start_bytes) const {
  const Kind& kind = *kinds_.at(block);
  const double fastest = kind.FastestSeconds();
  std::vector<tt_block_option> options;
  for (const Option& option : kind.options) {
    int64_t own_peak = option.own_peak_bytes;
    if (forward_start_bytes) own_peak = std::max(own_peak, *forward_start_bytes + option.forward_bytes);
    options.push_back({option.saved_bytes, own_peak, option.MedianSeconds() - fastest, option.label.c_str()});
  }
  return options;
}

std::string OptionMeasurements::ToText(const std::string& block, int32_t chosen) const {
  const Kind& kind = *kinds_.at(block);
  std::string text = "block " + block + ", options:\n";
  for (size_t o = 0; o < kind.options.size(); ++o) {
    const Option& option = kind.options[o];
    char figures[128];
    std::snprintf(figures, sizeof(figures), "saves %lld bytes, own peak %lld bytes, %.3f ms more than the fastest, %zu samples",
                  static_cast<long long>(option.saved_bytes), static_cast<long long>(option.own_peak_bytes),
                  (option.MedianSeconds() - kind.FastestSeconds()) * 1e3, option.samples);
    text += (static_cast<int32_t>(o) == chosen ? "  * " : "    ") + option.label + ": " + figures + "\n";
  }
  return text;
}

std::vector<std::string> OptionMeasurements::Blocks() const {
  std::vector<std::string> blocks;
  for (const auto& [block, kind] : kinds_) blocks.push_back(block);
  return blocks;
}

}  // namespace tidetape::agent
