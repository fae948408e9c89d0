#!/usr/bin/env bash
# That the GPU side builds, and its checks pass, from the sources alone by CMake.
set -euo pipefail
exec "$1" "$2" --folder "$TEST_TMPDIR/build" --report "${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}/gpu-check.json" --jobs 2
