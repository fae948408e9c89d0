#!/usr/bin/env bash
# Nothing but the C interface leaves the libraries, and torch and (in the local build) gRPC do not enter them. Arguments: the libraries,
# the local one last.
#
# Weak symbols of the C++ standard library stay: the linker exports those that other libraries refer to, whatever the version script
# says, and they are the same code everywhere.
set -euo pipefail
status=0

complain() {
  echo "FAILED: $1"
  status=1
}

for library in "$@"; do
  exported=$(nm -D --defined-only "$library" | awk '!($2 == "W" && $3 ~ /^_ZN?K?S/) {print $3}' | sort)
  expected=$(grep -oE '\btt_link_(abi_version|open|close|put_tape|report_step|plan_activated|take_plan|release_plan|set_memory_limit|state)\(' \
    agent/link/tt_link.h | tr -d '(' | sort -u)
  [[ "$exported" == "$expected" ]] || complain "$library exports
$(diff <(echo "$expected") <(echo "$exported") || true)"
  if readelf -d "$library" | grep NEEDED | grep -E 'torch|c10'; then complain "$library needs torch"; fi
done

last="${*: -1}"
if readelf -d "$last" | grep NEEDED | grep -E 'grpc|protobuf'; then complain "$last needs gRPC or protobuf"; fi
exit "$status"
