#include "agent/tape/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/tape/site.h"

namespace tidetape::agent {
namespace {

bool IsCollective(std::string_view name) {
  for (const std::string_view space :
       {"c10d::", "_c10d_functional::", "c10d_functional::", "_c10d_functional_autograd::", "fsdp::", "symm_mem::", "_dtensor::"}) {
    if (name.substr(0, space.size()) == space) return true;
  }
  return false;
}

bool IsUninitialized(std::string_view name) {
  for (const std::string_view op : {"aten::empty", "aten::new_empty", "aten::_empty_affine_quantized"}) {
    if (name.substr(0, op.size()) == op) return true;
  }
  return false;
}

// The schemas of these do not say that they update running statistics.
uint64_t StatisticsArguments(std::string_view name) {
  for (const std::string_view op : {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}) {
    if (name == op) return (1u << 3) | (1u << 4);
  }
  return 0;
}

// torch's own ops say what they do.
bool IsBuiltIn(std::string_view name) {
  for (const std::string_view space :
       {"aten::", "prim::", "prims::", "quantized::", "mkldnn::", "mkldnn_prepacked::", "prepacked::"}) {
    if (name.substr(0, space.size()) == space) return true;
  }
  return false;
}

// How often another op is watched before it is trusted.
constexpr int32_t kProbes = 2;

std::unique_ptr<OpFacts> Learn(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto facts = std::unique_ptr<OpFacts>(new OpFacts(op));
  facts->name = toString(op.operator_name());
  facts->name_hash = HashText(facts->name);
  facts->num_arguments = static_cast<uint32_t>(schema.arguments().size());
  facts->num_returns = static_cast<uint32_t>(schema.returns().size());
  facts->statistics_arguments = facts->written_arguments = StatisticsArguments(facts->name);
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    if (i < 64) {
      facts->written_arguments |= uint64_t{1} << i;
    } else {
      facts->replayable = false;
    }
  }
  facts->pure_view = facts->written_arguments == 0 && !schema.returns().empty();
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() == nullptr) facts->pure_view = false;
  }
  if (facts->name == "aten::_unsafe_view") facts->pure_view = true;  // its schema promises autograd what the kernel does not
  facts->random = op.hasTag(at::Tag::nondeterministic_seeded);
  facts->data_sized = op.hasTag(at::Tag::dynamic_output_shape);
  facts->uninitialized = IsUninitialized(facts->name);
  if (IsCollective(facts->name)) facts->replayable = false;
  if (IsBuiltIn(facts->name)) return facts;
  if (facts->replayable) facts->probes_left = kProbes;
  facts->schema = std::make_unique<const c10::FunctionSchema>(schema);
  facts->held_name = c10::Dispatcher::singleton().registerName(op.operator_name());
  return facts;
}

}  // namespace

const OpFacts& FactsOf(const c10::OperatorHandle& op) {
  const void* key = &op.operator_name();
  struct Entry {
    const void* key = nullptr;
    const OpFacts* facts = nullptr;
  };
  thread_local std::array<Entry, 1024> cache;
  Entry& entry = cache[(reinterpret_cast<uintptr_t>(key) * 0x9e3779b97f4a7c15ULL) >> 54];
  if (entry.key == key && entry.facts->Describes(op)) return *entry.facts;

  static std::mutex mutex;
  // The last is what the op is now; open tapes may name those before.
  static auto* known = new std::unordered_map<const void*, std::vector<std::unique_ptr<OpFacts>>>();
  const std::lock_guard lock(mutex);
  std::vector<std::unique_ptr<OpFacts>>& facts = (*known)[key];
  if (facts.empty() || !facts.back()->Describes(op)) facts.push_back(Learn(op));
  entry = {key, facts.back().get()};
  return *facts.back();
}

}  // namespace tidetape::agent
