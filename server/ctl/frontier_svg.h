// A frontier as a small picture.
#ifndef TIDETAPE_SERVER_CTL_FRONTIER_SVG_H_
#define TIDETAPE_SERVER_CTL_FRONTIER_SVG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tidetape/v1/planner_service.pb.h"

namespace tidetape::ctl {

struct FrontierPicture {
  std::string title;
  std::string bytes_axis;  // as in "step peak"
  google::protobuf::RepeatedPtrField<v1::FrontierPoint> points;
  std::optional<v1::FrontierPoint> current;  // where the job stands
  int64_t limit_bytes = 0;                   // drawn where it is positive and within the axis
};

// A complete SVG document, without external assets.
std::string FrontierSvg(const FrontierPicture& picture);

}  // namespace tidetape::ctl

#endif  // TIDETAPE_SERVER_CTL_FRONTIER_SVG_H_
