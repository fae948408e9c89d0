#include "collectives/simulator/model_shapes.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tidetape::collectives {
namespace {

// The fields of a Hugging Face config.json that decide shapes.
struct Config {
  const char* name;
  int64_t hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size, vocab_size;
  bool query_key_norm;
  int64_t num_experts;  // 0: dense; otherwise intermediate_size is that of one expert
};

constexpr Config kConfigs[] = {
    {"llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, false, 0},
    {"llama-3.1-70b", 8192, 80, 64, 8, 128, 28672, 128256, false, 0},
    {"qwen3-8b", 4096, 36, 32, 8, 128, 12288, 151936, true, 0},
    {"qwen3-32b", 5120, 64, 64, 8, 128, 25600, 151936, true, 0},
    {"qwen3-30b-a3b", 2048, 48, 32, 4, 128, 768, 151936, true, 128},
};

Parameter Weight(std::string name, std::vector<int64_t> shape) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  return parameter;
}

Unit Layer(const Config& config) {
  const int64_t hidden = config.hidden_size, queries = config.num_attention_heads * config.head_dim,
                keys = config.num_key_value_heads * config.head_dim;
  Unit unit;
  unit.name = "layers";
  unit.parameters = {Weight("input_layernorm", {hidden}), Weight("q_proj", {queries, hidden}),
                     Weight("k_proj", {keys, hidden}),    Weight("v_proj", {keys, hidden}),
                     Weight("o_proj", {hidden, queries}), Weight("post_attention_layernorm", {hidden})};
  if (config.query_key_norm) {
    unit.parameters.push_back(Weight("q_norm", {config.head_dim}));
    unit.parameters.push_back(Weight("k_norm", {config.head_dim}));
  }
  // Experts as one matrix each of all experts' rows, so that any number of ranks can share them.
  const int64_t copies = config.num_experts == 0 ? 1 : config.num_experts;
  if (config.num_experts > 0) unit.parameters.push_back(Weight("router", {config.num_experts, hidden}));
  unit.parameters.push_back(Weight("gate_proj", {copies * config.intermediate_size, hidden}));
  unit.parameters.push_back(Weight("up_proj", {copies * config.intermediate_size, hidden}));
  unit.parameters.push_back(Weight("down_proj", {copies * hidden, config.intermediate_size}));
  return unit;
}

ModelShape FromConfig(const Config& config) {
  ModelShape model;
  model.name = config.name;
  Unit embedding, head;
  embedding.name = "embed_tokens";
  embedding.parameters = {Weight("weight", {config.vocab_size, config.hidden_size})};
  head.name = "norm, lm_head";
  head.parameters = {Weight("norm", {config.hidden_size}), Weight("weight", {config.vocab_size, config.hidden_size})};
  head.keeps_slot = true;
  model.units = {{embedding, 1}, {Layer(config), static_cast<int32_t>(config.num_hidden_layers)}, {head, 1}};
  return model;
}

}  // namespace

int64_t ModelShape::parameters() const {
  int64_t sum = 0;
  for (const UnitShape& shape : units) {
    for (const Parameter& parameter : shape.unit.parameters) {
      int64_t elements = shape.count;
      for (int64_t size : parameter.shape) elements *= size;
      sum += elements;
    }
  }
  return sum;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Config& config : kConfigs) names.push_back(config.name);
  return names;
}

absl::StatusOr<ModelShape> ModelNamed(const std::string& name) {
  for (const Config& config : kConfigs) {
    if (name == config.name) return FromConfig(config);
  }
  return absl::NotFoundError(absl::StrCat("no model '", name, "'; there are ", absl::StrJoin(ModelNames(), ", ")));
}

}  // namespace tidetape::collectives
