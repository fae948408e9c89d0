#!/usr/bin/env bash
# Runs a Python test under Bazel: first argument the interpreter, then the script. Debian has no program called `python`, so no py_test.
set -eu
export PYTHONPATH="$PWD:$PWD/agent/python"
exec "$@"
