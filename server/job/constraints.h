// What an operator asks of a job, as it is told and compared.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_JOB_CONSTRAINTS_H_
#define TIDETAPE_SERVER_JOB_CONSTRAINTS_H_

#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::server {

// 16 hex digits that are equal where the constraints are, in every process: a restarted server knows what it told before.
std::string ConstraintsEtag(const v1::Constraints& constraints);

// As in "limit least memory, 2 pins, frozen at generation 3".
std::string DescribeConstraints(const v1::Constraints& constraints);

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_CONSTRAINTS_H_
