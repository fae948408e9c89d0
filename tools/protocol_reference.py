"""Writes docs/protocol.md, the reference of the protocol, from the comments of the protos.

python tools/protocol_reference.py          writes it
python tools/protocol_reference.py --check  fails where it is not what the protos say
"""

import argparse
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2
from proto_lint import (
    FILE_ENUM,
    FILE_MESSAGE,
    FILE_SERVICE,
    MESSAGE_ENUM,
    MESSAGE_FIELD,
    MESSAGE_NESTED,
    PROTOS,
    SERVICE_METHOD,
    describe,
)

REFERENCE = PROTOS.parent / "docs" / "protocol.md"
FILES = ("planner_service", "plan", "pacing", "tape", "known_run")
ENUM_VALUE = 2
Field = descriptor_pb2.FieldDescriptorProto

HEAD = """# Protocol reference

Made of the comments in [proto/tidetape/v1](../proto/tidetape/v1) by `tools/protocol_reference.py`; change those, not this page.

Agents and people speak gRPC with one service. Calls carry a token as `authorization: Bearer TOKEN` where the server asks for one
([who may do what](operations.md#secure)). The server has reflection, so `grpcurl` and the like need no files.

Fields are only added. A message of an unknown kind is taken as read, so newer agents work with older servers and the other way
round.
"""

ERRORS = """## Errors

A status has gRPC's code, a sentence for people, and `google.rpc.ErrorInfo` as a detail: domain `tidetape`, a reason for programs,
and metadata that say what it is about.

| reason | code | metadata | what it means |
|---|---|---|---|
| `TOKEN_MISSING` | UNAUTHENTICATED | | the call brings no bearer token |
| `TOKEN_UNKNOWN` | UNAUTHENTICATED | | the token is not in the server's file |
| `RIGHT_MISSING` | PERMISSION_DENIED | name | the token's role, or its jobs, do not allow this |
| `JOB_NOT_FOUND` | NOT_FOUND | job | no such job, or it was forgotten |
| `JOB_NOT_READY` | FAILED_PRECONDITION | job, waiting_for | ranks, tapes, measurements or the first plan are missing |
| `JOB_ENDED` | FAILED_PRECONDITION | job, incarnation | an operator ended this start of the job |
| `INCARNATION_SUPERSEDED` | FAILED_PRECONDITION | job, incarnation | a newer start of the job has connected |
| `GENERATION_NOT_KEPT` | NOT_FOUND | job, generation | no such plan, or it is too old |
| `ONE_SIZE` | FAILED_PRECONDITION | job | the job's blocks were seen at one size only, so nothing can be said of others |
| `OTHER_BLOCKS` | FAILED_PRECONDITION | job, generation | the job runs other blocks than the plan is of |
| `CONSTRAINTS_CHANGED` | ABORTED | job | somebody else changed the constraints; read them again |
| `INVALID_FIELD` | INVALID_ARGUMENT | field | the field's value cannot be |
| `TOO_MANY_JOBS` | RESOURCE_EXHAUSTED | | the server is full of jobs that run |
| `TOO_MANY_STREAMS` | RESOURCE_EXHAUSTED | | this peer has too many streams open |
| `TOO_MANY_QUESTIONS` | RESOURCE_EXHAUSTED | | too many questions wait for the planner; ask again |

UNAVAILABLE of a server that stands by has the detail `tidetape.v1.NotLeader` instead.
"""


class Page:
    """One file's part of the reference."""

    def __init__(self, file):
        self.file = file
        self.comments = {
            tuple(place.path): (place.leading_comments or place.trailing_comments) for place in file.source_code_info.location
        }

    def comment(self, path) -> str:
        """In one line."""
        return " ".join(self.comments.get(path, "").split())

    def service(self, service, path) -> str:
        rows = [f"## {service.name}\n", "| rpc | request | response | |", "|---|---|---|---|"]
        for i, method in enumerate(service.method):
            request = ("stream of " if method.client_streaming else "") + linked(method.input_type)
            response = ("stream of " if method.server_streaming else "") + linked(method.output_type)
            rows.append(f"| `{method.name}` | {request} | {response} | {cell(self.comment((*path, SERVICE_METHOD, i)))} |")
        return "\n".join(rows) + "\n"

    def message(self, message, path, parent="") -> str:
        name = parent + message.name
        parts = [f"### {name}\n"]
        if text := self.comment(path):
            parts.append(text + "\n")
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        rows = []
        for i, field in enumerate(message.field):
            about = cell(self.comment((*path, MESSAGE_FIELD, i)))
            if field.HasField("oneof_index") and not field.proto3_optional:
                about = f"one of *{message.oneof_decl[field.oneof_index].name}*. {about}".strip()
            rows.append(f"| {field.number} | `{field.name}` | {type_of(field, entries)} | {about} |")
        parts.append("\n".join(["| | field | type | |", "|---|---|---|---|", *rows]) + "\n" if rows else "No fields.\n")
        for i, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                parts.append(self.message(nested, (*path, MESSAGE_NESTED, i), f"{name}."))
        parts += [self.enum(enum, (*path, MESSAGE_ENUM, i), f"{name}.") for i, enum in enumerate(message.enum_type)]
        return "\n".join(parts)

    def enum(self, enum, path, parent="") -> str:
        rows = [f"### {parent}{enum.name}\n"]
        if text := self.comment(path):
            rows.append(text + "\n")
        rows += ["| | value | |", "|---|---|---|"]
        for i, value in enumerate(enum.value):
            rows.append(f"| {value.number} | `{value.name}` | {cell(self.comment((*path, ENUM_VALUE, i)))} |")
        return "\n".join(rows) + "\n"

    def text(self) -> str:
        parts = [self.service(service, (FILE_SERVICE, i)) for i, service in enumerate(self.file.service)]
        parts.append(f"## {self.file.name.rsplit('/', 1)[-1]}\n")
        parts += [self.message(message, (FILE_MESSAGE, i)) for i, message in enumerate(self.file.message_type)]
        parts += [self.enum(enum, (FILE_ENUM, i)) for i, enum in enumerate(self.file.enum_type)]
        return "\n".join(parts)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def linked(type_name: str) -> str:
    """A message or an enum of ours, as a link to where it is told."""
    if not type_name.startswith(".tidetape.v1."):
        return f"`{type_name.lstrip('.')}`"
    name = type_name.removeprefix(".tidetape.v1.")
    return f"[{name}](#{name.lower().replace('.', '')})"


def type_of(field, entries) -> str:
    if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
        entry = entries.get(field.type_name.rsplit(".", 1)[-1])
        if entry is not None:
            key, value = entry.field
            return f"map of {type_of(key, {})} to {type_of(value, {})}"
        name = linked(field.type_name)
    else:
        name = Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == Field.LABEL_REPEATED:
        return f"list of {name}"
    return f"{name}, optional" if field.proto3_optional else name


def reference() -> str:
    files = {Path(file.name).stem: file for file in describe(PROTOS)}
    assert set(files) == set(FILES), "name every proto in FILES, in the order in which people should read them"
    return "\n".join([HEAD, *(Page(files[name]).text() for name in FILES), ERRORS])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where the page is out of date")
    options = parser.parse_args()
    if not options.check:
        REFERENCE.write_text(reference())
        return 0
    if REFERENCE.read_text() == reference():
        return 0
    print("docs/protocol.md is out of date; run tools/protocol_reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
