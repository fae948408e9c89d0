import re
from pathlib import Path

from proto_lint import describe
from protocol_reference import REFERENCE, Page, reference

ROOT = Path(__file__).resolve().parent.parent.parent

PROTO = """
syntax = "proto3";
package tidetape.v1;

// A thing that
// is told in two lines.
message Thing {
  // Whose | it is.
  enum Kind {
    KIND_UNSPECIFIED = 0;
    // Fresh.
    KIND_NEW = 1;
  }
  optional int64 saved_bytes = 3;
  repeated Kind kinds = 4;
  map<string, Thing> parts = 5;
  oneof choice {
    // The first.
    string name = 6;
  }
}
message AskRequest {}
message AskResponse {}
service ThingService {
  // Asks.
  rpc Ask(stream AskRequest) returns (AskResponse);
}
"""


def test_the_page_is_what_the_protos_say():
    assert REFERENCE.read_text() == reference(), "run tools/protocol_reference.py"


def test_comments_types_and_numbers_are_told(tmp_path):
    folder = tmp_path / "tidetape" / "v1"
    folder.mkdir(parents=True)
    (folder / "thing.proto").write_text(PROTO)
    (file,) = describe(tmp_path)
    lines = Page(file).text().splitlines()
    assert "| `Ask` | stream of [AskRequest](#askrequest) | [AskResponse](#askresponse) | Asks. |" in lines
    assert "A thing that is told in two lines." in lines
    assert "| 3 | `saved_bytes` | int64, optional |  |" in lines
    assert "| 4 | `kinds` | list of [Thing.Kind](#thingkind) |  |" in lines
    assert "| 5 | `parts` | map of string to [Thing](#thing) |  |" in lines
    assert "| 6 | `name` | string | one of *choice*. The first. |" in lines
    assert "Whose \\| it is." not in lines and "Whose | it is." in lines
    assert "| 1 | `KIND_NEW` | Fresh. |" in lines
    assert "No fields." in lines


def test_every_link_has_its_heading():
    text = REFERENCE.read_text()
    headings = {name.lower().replace(".", "") for name in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\(#(\w+)\)", text)) <= headings


def test_the_reasons_are_those_that_the_sources_give():
    told = set(re.findall(r"^\| `([A-Z_]+)` \| [A-Z_]+ \|", REFERENCE.read_text(), re.MULTILINE))
    given = set()
    for path in (ROOT / "server").rglob("*.cpp"):
        for call in path.read_text().split("WithErrorInfo(")[1:]:
            given.add(re.search(r'"([A-Z]+(?:_[A-Z]+)+)"', call)[1])
    assert told == given
