// The pictures of a job's page, each in two widths of which the screen shows one.
#ifndef TIDETAPE_SERVER_HTTP_JOB_CHARTS_H_
#define TIDETAPE_SERVER_HTTP_JOB_CHARTS_H_

#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// Replay time against step peak, the limit, and where the job stands.
std::string FrontierFigure(const v1::GetFrontierResponse& frontier);

// Memory through the step: the predicted peak of each part, and live bytes at the ends of blocks where a rank measured them.
std::string StepMemoryFigure(const v1::GetStepMemoryResponse& memory, int64_t memory_limit_bytes);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_HTTP_JOB_CHARTS_H_
