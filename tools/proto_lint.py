"""Checks the protos against the project's rules, from protoc's own description of them."""

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from google.protobuf import descriptor_pb2

PROTOS = Path(__file__).resolve().parent.parent / "proto"
Field = descriptor_pb2.FieldDescriptorProto

# A number's name says its unit, or what it counts; any other number needs a comment.
UNIT_WORDS = (
    "bytes",
    "seconds",
    "micros",
    "ratio",
    "count",
    "index",
    "rank",
    "ranks",
    "size",
    "generation",
    "step",
    "ops",
    "version",
)
NUMBERS = {Field.TYPE_DOUBLE, Field.TYPE_FLOAT, Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64}

# Numbers of fields in descriptor.proto: they make up the paths under which comments are found.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE = 4, 5, 6
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM = 2, 3, 4
SERVICE_METHOD = 2


def describe(folder: Path) -> list[descriptor_pb2.FileDescriptorProto]:
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{folder}", "--include_source_info", f"--descriptor_set_out={out.name}", *files], check=True)
        return list(descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes()).file)


def screaming(name: str) -> str:
    """PeakHolder -> PEAK_HOLDER"""
    return "".join("_" + letter if letter.isupper() and i else letter for i, letter in enumerate(name)).upper()


class Linter:
    """Collects complaints as "file:line: what and what to do"."""

    def __init__(self):
        self.complaints: list[str] = []

    def lint(self, files: list[descriptor_pb2.FileDescriptorProto]) -> list[str]:
        """All complaints about the files taken together."""
        used = Counter(
            kind
            for file in files
            for service in file.service
            for method in service.method
            for kind in (method.input_type, method.output_type)
        )
        for file in files:
            self.file = file
            self.locations = {tuple(location.path): location for location in file.source_code_info.location}
            if not file.package.startswith("tidetape."):
                self.complain((), "has no package tidetape.vN")
            elif Path(file.name).parent.as_posix() != file.package.replace(".", "/"):
                self.complain((), f"lies in another folder than its package {file.package}")
            for i, message in enumerate(file.message_type):
                self.message(message, (FILE_MESSAGE, i))
            for i, enum in enumerate(file.enum_type):
                self.enum(enum, (FILE_ENUM, i))
            for i, service in enumerate(file.service):
                self.service(service, (FILE_SERVICE, i), used)
        return self.complaints

    def complain(self, path: tuple[int, ...], text: str) -> None:
        line = self.locations[path].span[0] + 1 if path in self.locations else 1
        self.complaints.append(f"proto/{self.file.name}:{line}: {text}")

    def has_comment(self, path: tuple[int, ...]) -> bool:
        location = self.locations.get(path)
        return location is not None and bool((location.leading_comments + location.trailing_comments).strip())

    def message(self, message, path) -> None:
        self_explaining = message.name.endswith(("Request", "Response"))
        if not self_explaining and not self.has_comment(path):
            self.complain(path, f"message {message.name} needs a comment")
        for i, field in enumerate(message.field):
            place = (*path, MESSAGE_FIELD, i)
            if field.name != field.name.lower():
                self.complain(place, f"field {field.name} is not in lower_snake_case")
            says_unit = any(word in UNIT_WORDS for word in field.name.split("_"))
            if field.type in NUMBERS and not says_unit and not self.has_comment(place):
                self.complain(place, f"number {message.name}.{field.name} needs a unit in its name or a comment")
        for i, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                self.message(nested, (*path, MESSAGE_NESTED, i))
        for i, enum in enumerate(message.enum_type):
            self.enum(enum, (*path, MESSAGE_ENUM, i))

    def enum(self, enum, path) -> None:
        prefix = screaming(enum.name)
        if enum.value[0].number != 0 or enum.value[0].name != f"{prefix}_UNSPECIFIED":
            self.complain(path, f"enum {enum.name} has to begin with {prefix}_UNSPECIFIED = 0")
        for value in enum.value:
            if not value.name.startswith(prefix + "_"):
                self.complain(path, f"enum value {value.name} has to begin with {prefix}_")

    def service(self, service, path, used) -> None:
        if not service.name.endswith("Service"):
            self.complain(path, f"service {service.name} has to end in Service")
        for i, method in enumerate(service.method):
            place = (*path, SERVICE_METHOD, i)
            if not self.has_comment(place) and not method.name.startswith(("List", "Get")):
                self.complain(place, f"rpc {method.name} needs a comment")
            for kind, suffix in ((method.input_type, "Request"), (method.output_type, "Response")):
                if kind.rsplit(".", 1)[-1] != method.name + suffix or used[kind] != 1:
                    self.complain(place, f"rpc {method.name} needs {method.name}{suffix} for itself, not {kind}")


def main() -> int:
    complaints = Linter().lint(describe(PROTOS))
    print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
