#include "server/metrics/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>

namespace tidetape::server {

std::string RenderMetrics(const std::vector<const prometheus::Collectable*>& sources) {
  std::ostringstream out;
  const prometheus::TextSerializer serializer;
  for (const prometheus::Collectable* source : sources) serializer.Serialize(out, source->Collect());
  return out.str();
}

}  // namespace tidetape::server
