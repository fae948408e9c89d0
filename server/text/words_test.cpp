#include "server/text/words.h"

#include <gtest/gtest.h>

namespace tidetape {
namespace {

TEST(KeptText, IsTheOptionsLabelOrTheNumberOfValues) {
  v1::BlockPlan plan;
  plan.set_option(-1);
  for (const int32_t storage : {1, 4, 7}) plan.add_saved(storage);
  EXPECT_EQ(KeptText(plan), "3");
  plan.clear_saved();
  plan.set_option(1);
  EXPECT_EQ(KeptText(plan), "option 1");  // of a plan made before options had labels
  plan.set_option_label("matmuls");
  EXPECT_EQ(KeptText(plan), "matmuls");
}

}  // namespace
}  // namespace tidetape
