// Why plans are made, in classes that can be counted; the sentence for people is in Plan.reason.
#ifndef TIDETAPE_SERVER_JOB_PLAN_CAUSE_H_
#define TIDETAPE_SERVER_JOB_PLAN_CAUSE_H_

#include <string>

namespace tidetape::server {

enum class PlanCause {
  kFirst,      // the first plan of this start of the job
  kWarmStart,  // the same, made early because an earlier run had measured these blocks
  kLimit,      // another limit
  kChange,     // tapes or what an operator asks for
  kAhead,      // a rank holds a newer plan than the server
  kFrozen,     // an operator's plan comes back into force
  kBlocks,     // the step runs other blocks
  kOverLimit,  // by what is measured now, the plan in force breaks its limit
  kPeak,       // its predicted peak has moved
  kCosts,      // its predicted replay time has moved, and another plan is faster
  kResidual,   // measured peaks were above the predicted band
  kPacing,     // the links were measured, or the collectives would be faster otherwise
};

// As in "warm_start", for a metric's label.
inline std::string PlanCauseName(PlanCause cause) {
  switch (cause) {
    case PlanCause::kFirst:
      return "first";
    case PlanCause::kWarmStart:
      return "warm_start";
    case PlanCause::kLimit:
      return "limit";
    case PlanCause::kChange:
      return "change";
    case PlanCause::kAhead:
      return "ahead";
    case PlanCause::kFrozen:
      return "frozen";
    case PlanCause::kBlocks:
      return "blocks";
    case PlanCause::kOverLimit:
      return "over_limit";
    case PlanCause::kPeak:
      return "peak";
    case PlanCause::kCosts:
      return "costs";
    case PlanCause::kResidual:
      return "residual";
    case PlanCause::kPacing:
      return "pacing";
  }
  return "";
}

}  // namespace tidetape::server

#endif  // TIDETAPE_SERVER_JOB_PLAN_CAUSE_H_
