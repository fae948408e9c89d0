#include "collectives/verifier/program.h"

#include "absl/strings/str_cat.h"

namespace tidetape::collectives {

std::string EntryText(int32_t rank, const ProgramEntry& entry) {
  std::string where = absl::StrCat("rank ", rank, ", ");
  const std::string unit = entry.schedule == nullptr ? "" : absl::StrCat(" of '", entry.schedule->unit, "'");
  switch (entry.action) {
    case TrainingAction::kNone:
      return absl::StrCat(where, entry.schedule->collective, unit, ", ", StepText(*entry.schedule, entry.step));
    case TrainingAction::kReadArena:
      return absl::StrCat(where, "what read the arena before");
    case TrainingAction::kFillShard:
      return absl::StrCat(where, "the training's writing of the own shard", unit);
    case TrainingAction::kUseParameters:
      return absl::StrCat(where, "the training's reading of the parameters", unit);
    case TrainingAction::kFreeGradients:
      return absl::StrCat(where, "the training's freeing of the gradients", unit);
    case TrainingAction::kReadOutputs:
      return absl::StrCat(where, "the optimizer's reading of the gradient shards", unit);
    case TrainingAction::kReuseArena:
      return absl::StrCat(where, "what writes the arena after");
  }
  return where;
}

}  // namespace tidetape::collectives
