// The contract's enums and what holds a peak, in the words that people read.
//
// Pure functions; safe to call from any thread.
#ifndef TIDETAPE_SERVER_TEXT_WORDS_H_
#define TIDETAPE_SERVER_TEXT_WORDS_H_

#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape {

// As in "running".
std::string StateName(v1::JobSummary::State state);

// As in "save"; "-" where nothing is done.
std::string ActionName(v1::Action action);

// What a block keeps: the label of its option, or how many values.
std::string KeptText(const v1::BlockPlan& plan);

// As in "backward of layers.7", or "head".
std::string HolderText(const v1::PeakHolder& holder);

// As in "1.5 GiB", or "1.5 GiB and 20 MiB held free".
std::string PeakText(const v1::Plan& plan);

// As in "ring, chunks of 256 KiB, 4 in flight, 1.2 ms apart".
std::string PacingText(const v1::PacingPlan& pacing);

// As in "+3.10 %"; "-" where nothing was measured under the plan.
std::string ResidualText(const v1::JobSummary& job);

}  // namespace tidetape

#endif  // TIDETAPE_SERVER_TEXT_WORDS_H_
