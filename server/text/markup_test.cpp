#include "server/text/markup.h"

#include <gtest/gtest.h>

namespace tidetape {
namespace {

TEST(Markup, NothingThatOpensMarkupIsLeft) {
  EXPECT_EQ(EscapeMarkup("<script>\"a\" & 'b'</script>"), "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;");
  EXPECT_EQ(EscapeMarkup(std::string("a\0b\x1b", 4)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(EscapeMarkup("layers.0 Größe"), "layers.0 Größe");
}

TEST(Markup, AQueryHoldsOnlyWhatNeedsNoEscape) {
  EXPECT_EQ(EscapeQuery("train-1_a.b~"), "train-1_a.b~");
  EXPECT_EQ(EscapeQuery("a&b=c d/<\xC3\xB6>"), "a%26b%3Dc%20d%2F%3C%C3%B6%3E");
}

}  // namespace
}  // namespace tidetape
