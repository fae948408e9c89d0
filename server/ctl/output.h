// What tidetapectl prints, as text or as JSON.
#ifndef TIDETAPE_SERVER_CTL_OUTPUT_H_
#define TIDETAPE_SERVER_CTL_OUTPUT_H_

#include <google/protobuf/message.h>

#include <ostream>
#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::ctl {

struct OutputFormat {
  // kWide: tables with more columns.
  enum Kind { kText, kWide, kJson };
  Kind kind = kText;
  bool one_line = false;  // JSON in one line, for what comes again and again

  bool json() const { return kind == kJson; }
  bool wide() const { return kind == kWide; }
};

// The message in proto3 JSON with the contract's field names, all of them there, and a line's end. 64-bit integers are strings, as
// proto3 says.
std::string ToJson(const google::protobuf::Message& message, const OutputFormat& format);

// As a JSON string, with its quotes.
std::string JsonString(const std::string& text);

void PrintJobs(const v1::ListJobsResponse& jobs, bool wide, std::ostream& out);
void PrintJob(const v1::GetJobResponse& job, bool wide, std::ostream& out);
void PrintPlans(const v1::ListPlansResponse& plans, bool wide, std::ostream& out);
void PrintStepMemory(const v1::GetStepMemoryResponse& memory, std::ostream& out);
// One line for the limit and one a pin.
void PrintConstraints(const v1::Constraints& constraints, std::ostream& out);
void PrintPlan(const v1::Plan& plan, std::ostream& out);
void PrintFrontier(const v1::GetFrontierResponse& frontier, bool of_block, std::ostream& out);
// Points of one block's frontier alone.
void PrintHull(const google::protobuf::RepeatedPtrField<v1::FrontierPoint>& points, std::ostream& out);
void PrintExplanation(const v1::ExplainPlanResponse& explanation, std::ostream& out);

// One line.
void PrintWatched(const v1::WatchJobResponse& response, std::ostream& out);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_OUTPUT_H_
