#include "agent/fsdp/gradient_notice.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace tidetape::agent {
namespace {

// The records of two ranks never leave their machines' kind: same release, same byte order.
struct Head {
  int32_t unit;
  uint16_t widened, slot_vacated;
  double divide_factor;
  int64_t pacing_in_force;
  int64_t pacing_armed;
  uint64_t pacing_armed_hash;
  uint64_t pacing_told_hash;
  uint64_t pacing_armed_by_all;
};

std::string UnitText(int32_t unit, const std::vector<std::string>& names) {
  return unit >= 0 && unit < static_cast<int32_t>(names.size()) ? absl::StrCat("'", names[unit], "'") : absl::StrCat(unit);
}

}  // namespace

size_t GradientNotice::EncodedBytes(size_t parameters) { return sizeof(Head) + (parameters + 7) / 8; }

std::string GradientNotice::Encode() const {
  std::string bytes(EncodedBytes(present.size()), '\0');
  const Head head = {unit,         widened,           slot_vacated,     divide_factor,      pacing.in_force,
                     pacing.armed, pacing.armed_hash, pacing.told_hash, pacing.armed_by_all};
  std::memcpy(bytes.data(), &head, sizeof head);
  for (size_t p = 0; p < present.size(); ++p) {
    if (present[p]) bytes[sizeof head + p / 8] = static_cast<char>(bytes[sizeof head + p / 8] | 1 << p % 8);
  }
  return bytes;
}

GradientNotice GradientNotice::Decode(absl::string_view bytes, size_t parameters) {
  Head head;
  std::memcpy(&head, bytes.data(), sizeof head);
  GradientNotice notice = {
      head.unit,
      head.widened != 0,
      head.divide_factor,
      head.slot_vacated != 0,
      std::vector<bool>(parameters),
      {head.pacing_in_force, head.pacing_armed, head.pacing_armed_hash, head.pacing_told_hash, head.pacing_armed_by_all != 0}};
  for (size_t p = 0; p < parameters; ++p) notice.present[p] = (bytes[sizeof head + p / 8] >> p % 8 & 1) != 0;
  return notice;
}

absl::Status GradientNotice::Merge(const GradientNotice& other, int32_t other_rank, const std::vector<std::string>& unit_names) {
  if (other.unit != unit) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", other_rank, " reduces the gradients of unit ", UnitText(other.unit, unit_names), ", this rank those of ",
        UnitText(unit, unit_names), "; all ranks must run backward through the same units in the same order"));
  }
  if (other.divide_factor != divide_factor) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", other_rank, " divides the gradients of unit ",
                                                      UnitText(unit, unit_names), " by ", other.divide_factor, ", this rank by ",
                                                      divide_factor, "; set the same gradient divide factor on all ranks"));
  }
  if (other.pacing.in_force != pacing.in_force) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", other_rank, " reduces the gradients of unit ", UnitText(unit, unit_names), " under pacing generation ",
        other.pacing.in_force, ", this rank under ", pacing.in_force, "; this is a fault of Tidetape's, please report it"));
  }
  pacing.armed_by_all = pacing.armed_by_all && other.pacing.armed_by_all && other.pacing.armed == pacing.armed &&
                        other.pacing.armed_hash == pacing.armed_hash && other.pacing.told_hash == pacing.told_hash;
  widened = widened || other.widened;
  slot_vacated = slot_vacated && other.slot_vacated;
  for (size_t p = 0; p < present.size(); ++p) present[p] = present[p] || other.present[p];
  return absl::OkStatus();
}

}  // namespace tidetape::agent
