from proto_lint import Linter, describe

GOOD = """
syntax = "proto3";
package tidetape.v1;

// A thing.
message Thing {
  enum Kind { KIND_UNSPECIFIED = 0; KIND_NEW = 1; }
  int64 saved_bytes = 1;
  Kind kind = 2;
  // How many there are.
  int32 things = 3;
}
message GetThingRequest {}
message GetThingResponse { Thing thing = 1; }
service ThingService { rpc GetThing(GetThingRequest) returns (GetThingResponse); }
"""


def complaints(tmp_path, text):
    folder = tmp_path / "tidetape" / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "thing.proto").write_text(text)
    return [complaint.split(": ", 1)[1] for complaint in Linter().lint(describe(tmp_path))]


def test_a_good_file_has_no_complaints(tmp_path):
    assert complaints(tmp_path, GOOD) == []


def test_every_rule_finds_its_breach(tmp_path):
    breaches = {
        ("package tidetape.v1;", "package other;"): "has no package tidetape.vN",
        ("package tidetape.v1;", "package tidetape.v2;"): "lies in another folder than its package tidetape.v2",
        ("KIND_UNSPECIFIED", "KIND_OLD"): "enum Kind has to begin with KIND_UNSPECIFIED = 0",
        ("KIND_NEW", "NEW"): "enum value NEW has to begin with KIND_",
        ("// A thing.", ""): "message Thing needs a comment",
        ("// How many there are.", ""): "number Thing.things needs a unit in its name or a comment",
        ("Kind kind", "Kind theKind"): "field theKind is not in lower_snake_case",
        ("service ThingService", "service Things"): "service Things has to end in Service",
        ("returns (GetThingResponse)", "returns (Thing)"): (
            "rpc GetThing needs GetThingResponse for itself, not .tidetape.v1.Thing"
        ),
    }
    for (before, after), complaint in breaches.items():
        assert complaints(tmp_path, GOOD.replace(before, after)) == [complaint]


def test_a_request_belongs_to_one_rpc(tmp_path):
    shared = GOOD.replace("(GetThingResponse);", "(GetThingResponse); rpc ListThings(GetThingRequest) returns (GetThingResponse);")
    assert len(complaints(tmp_path, shared)) == 4
