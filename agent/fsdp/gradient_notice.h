// What a rank says before it reduces a unit: which parameters have a gradient here, in which dtype, the divide factor, whether the
// unit's slot is vacated, and where it stands with its pacing.
//
// Ranks may differ in what they have, not in what they do with it. So each sends its notice to the ranks that reduce with it, and
// all merge the same notices to the same result: a parameter has a gradient if some rank has one, gradients travel as float32 if
// some rank has float32 ones, rows are staged in the slot if all ranks have vacated it. What cannot be merged is an error on all
// ranks, at once and not at a deadline.
#ifndef TIDETAPE_AGENT_FSDP_GRADIENT_NOTICE_H_
#define TIDETAPE_AGENT_FSDP_GRADIENT_NOTICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tidetape::agent {

// All ranks that merge the same notices know the same of each other's pacing, at the same place among their collectives: that is
// what makes a switch safe (data_plane.h).
struct PacingNotice {
  int64_t in_force = 0;     // generation
  int64_t armed = 0;        // the one that the rank would switch to; 0: none
  uint64_t armed_hash = 0;  // of what it says
  uint64_t told_hash = 0;  // of which slots the rank has told free: a switch takes those words back, so all must have said the same
  bool armed_by_all = true;  // the same, with the same slots told free, of the ranks merged so far
};

struct GradientNotice {
  int32_t unit = 0;
  bool widened = false;  // some gradients are float32 where autograd leaves bfloat16: sums of several micro-batches
  double divide_factor = 1;
  bool slot_vacated = false;
  std::vector<bool> present;  // by parameter of the unit
  PacingNotice pacing;

  // Of fixed size for a number of parameters.
  std::string Encode() const;
  static GradientNotice Decode(absl::string_view bytes, size_t parameters);
  static size_t EncodedBytes(size_t parameters);

  // FailedPrecondition where the other rank reduces another unit, divides by another factor or is paced by another generation.
  // Names are for the message.
  absl::Status Merge(const GradientNotice& other, int32_t other_rank, const std::vector<std::string>& unit_names);
};

}  // namespace tidetape::agent

#endif  // TIDETAPE_AGENT_FSDP_GRADIENT_NOTICE_H_
