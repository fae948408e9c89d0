// Conversion between the planner's structs and the messages of proto/tidetape/v1, and problem files.
#ifndef TIDETAPE_PLANNER_IO_PROBLEM_IO_H_
#define TIDETAPE_PLANNER_IO_PROBLEM_IO_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "planner/model/plan.h"
#include "planner/model/problem.h"
#include "tidetape/v1/plan.pb.h"
#include "tidetape/v1/tape.pb.h"

namespace tidetape::planner {

// Plain conversions, field by field; nothing is checked but enums. A storage without a kind is an intermediate.
BlockTape FromProto(const v1::BlockTape& proto);
BlockInstance FromProto(const v1::BlockInstance& proto);
ScheduledPart FromProto(const v1::ScheduledPart& proto);
Headroom FromProto(const v1::Headroom& proto);
PlanningProblem FromProto(const v1::PlanningProblem& proto);
v1::BlockTape ToProto(const BlockTape& tape);
v1::BlockInstance ToProto(const BlockInstance& instance);
v1::ScheduledPart ToProto(const ScheduledPart& part);
v1::Headroom ToProto(const Headroom& headroom);
v1::PlanningProblem ToProto(const PlanningProblem& problem);
v1::FrontierPoint ToProto(const FrontierPoint& point);
// With the block's name.
v1::PeakHolder ToProto(const PlanningProblem& problem, const PeakHolder& holder);

// The plan as agents get it, without the job's own fields (generation, job, incarnation, etag, reason, time). Saved storages are
// named by site with ACTION_SAVE and the rest is replayed; under kUnlimitedBytes the default is ACTION_SAVE, and the sites are
// those of consumed storages that are replayed. A storage with site 0 has no name and is not listed.
v1::Plan ToProto(const PlanningProblem& problem, const StepPlan& plan);

// A problem in proto3 JSON. InvalidArgument with the line, the field or the end of the input where it cannot be read; the content
// is checked by the planner (ValidateProblem).
absl::StatusOr<PlanningProblem> ParseProblem(std::string_view json);
// NotFound where the file cannot be opened; otherwise as ParseProblem, with the path in the text.
absl::StatusOr<PlanningProblem> ReadProblemFile(const std::string& path);
// The inverse of ParseProblem, indented.
std::string PrintProblem(const PlanningProblem& problem);

}  // namespace tidetape::planner

#endif  // TIDETAPE_PLANNER_IO_PROBLEM_IO_H_
