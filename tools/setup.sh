#!/usr/bin/env bash
# Installs what building and testing need: Debian packages (the only step that needs root) and Python packages into .venv.
# Does nothing, quickly, where everything is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t wanted < <(grep -v '^#' tools/debian_packages.txt)
installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^ii *//p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]})); then
  if [[ $(id -u) != 0 ]]; then
    echo "setup: Debian packages are missing. Run this as root, then make setup again:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# The stamp names what the environment was made of: the interpreter and the exact requirements.
stamp=.venv/tidetape-setup
inputs=$({ /usr/bin/python3 --version; cat requirements.txt requirements-programs.txt; } | sha256sum)
if [[ -x .venv/bin/python && $(cat "$stamp" 2>/dev/null) == "$inputs" ]]; then
  exit 0
fi
[[ -x .venv/bin/python ]] || { echo "setup: making .venv"; /usr/bin/python3 -m venv .venv; }
echo "setup: checking and installing Python packages (about 6 GB where none is there yet)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement requirements-programs.txt
echo "$inputs" >"$stamp"
