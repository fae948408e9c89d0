// What tidetapectl prints, as text or as JSON.
#ifndef TIDETAPE_SERVER_CTL_OUTPUT_H_
#define TIDETAPE_SERVER_CTL_OUTPUT_H_

#include <google/protobuf/message.h>

#include <ostream>
#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::ctl {

enum class Format { kText, kJson };

// The message in proto3 JSON with the contract's field names, in one line or indented. 64-bit integers are strings, as proto3 says.
std::string ToJson(const google::protobuf::Message& message, bool indented);

void PrintJobs(const v1::ListJobsResponse& jobs, std::ostream& out);
void PrintPlan(const v1::Plan& plan, std::ostream& out);
void PrintFrontier(const v1::GetFrontierResponse& frontier, bool of_block, std::ostream& out);
// Points of one block's frontier alone.
void PrintHull(const google::protobuf::RepeatedPtrField<v1::FrontierPoint>& points, std::ostream& out);
void PrintExplanation(const v1::ExplainPlanResponse& explanation, std::ostream& out);

// One line.
void PrintWatched(const v1::WatchJobResponse& response, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_OUTPUT_H_
