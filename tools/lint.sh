#!/usr/bin/env bash
# Checks formatting and common mistakes in the project's own code; changes nothing. Says all it finds, then fails if it found any.
# With file names, checks those C++ files only.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
python=.venv/bin/python
failed=0
check() {
  echo "lint: $1"
  shift
  "$@" || failed=1
}

if (($#)); then
  cpp=("$@")
else
  mapfile -t cpp < <(git ls-files -co --exclude-standard -- '*.cpp' '*.h' ':!third_party')
fi
check "clang-format" clang-format --dry-run -Werror "${cpp[@]}"

mapfile -t torch < <($python -I -c '
import importlib.util, os, sysconfig
root = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "include")
print(root, os.path.join(root, "torch/csrc/api/include"), sysconfig.get_path("include"), sep="\n")')
flags=(-std=c++20 -I. -Ibazel-bin -Ibazel-bin/proto -Iproto -DTT_TORCH_VERSION=21401)
for folder in "${torch[@]}"; do flags+=(-isystem "$folder"); done
tidy() {
  # nccl_abi_check.cpp needs a new nccl.h; gpu-check compiles it where there is one.
  printf '%s\n' "${cpp[@]}" | grep '\.cpp$' | grep -v 'nccl_abi_check' | xargs -P "$(nproc)" -I{} clang-tidy --quiet --warnings-as-errors='*' {} -- "${flags[@]}" 2> >(grep -v 'warnings\? generated' >&2)
}
check "clang-tidy" tidy
if ((!$#)); then
  check "ruff" $python -m ruff check .
  check "ruff format" $python -m ruff format --check .
  mapfile -t scripts < <(git ls-files -co --exclude-standard -- '*.sh' '*.sbatch' ':!third_party')
  check "shellcheck" shellcheck --severity=warning "${scripts[@]}"
  check "protos" $python tools/proto_lint.py
fi
exit $failed
