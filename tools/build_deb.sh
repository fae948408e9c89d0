#!/usr/bin/env bash
# Builds dist/tidetape-server_….deb from Bazel's programs and deploy/. Needs no torch and no .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/.*kVersion\[\] = "\(.*\)";/\1/p' server/common/version.h)
packaged=$(dpkg-parsechangelog -l deploy/debian/changelog -S Version)
if [[ $packaged != "$version" ]]; then
  echo "build_deb: the server is $version, deploy/debian/changelog says $packaged" >&2
  exit 1
fi
bazel build //server:tidetape-server //server:tidetapectl

stage=build/deb/tidetape-$version
rm -rf build/deb
mkdir -p "$stage"/{bin,docs,examples} dist
cp -r deploy/debian "$stage/debian"
cp bazel-bin/server/{tidetape-server,tidetapectl} "$stage/bin/"
chmod 755 "$stage"/bin/*
cp deploy/systemd/tidetape-server.{service,sysusers} "$stage/debian/"
cp deploy/systemd/server.flags "$stage/"
cp docs/{operations,runbook}.md "$stage/docs/"
cp deploy/prometheus/{prometheus,tidetape.rules}.yml deploy/grafana/*.json deploy/grafana/provider.yml "$stage/examples/"
(cd "$stage" && dpkg-buildpackage --build=binary --no-sign --no-pre-clean >../log 2>&1) || {
  cat build/deb/log >&2
  exit 1
}
rm -f dist/tidetape-server_*.deb
cp build/deb/tidetape-server_*.deb dist/
echo "build_deb: $(ls dist/tidetape-server_*.deb)"
