#!/usr/bin/env bash
# Fuzzes the reader of problem files and the solver behind it, under the address and the undefined-behaviour sanitizer.
# usage: tools/fuzz_planner.sh SECONDS [libFuzzer options]
# Inputs that reach something new are added to build/fuzz-corpus; planner/testing/corpus is what every run starts from.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/fuzz_planner.sh SECONDS [libFuzzer options]}
shift
out=build/fuzz
mkdir -p "$out" build/fuzz-corpus
protos=bazel-bin/proto
[[ -e $protos/tidetape/v1/tape.pb.h ]] || { echo "fuzz_planner: $protos is not there: run 'make build'" >&2; exit 1; }
packages=(absl_status absl_statusor absl_strings absl_str_format protobuf)
mapfile -t sources < <(
  find planner -maxdepth 1 -name '*.cpp' ! -name '*_test.cpp'
  find planner/{model,tape,step,job} -name '*.cpp' ! -name '*_test.cpp'
  find -L "$protos/tidetape/v1" -name '*.pb.cc' ! -name '*.grpc.pb.cc'
)
sources+=(planner/io/problem_io.cpp planner/io/plain_json.cpp planner/testing/fuzz_problem.cpp)
read -ra package_flags < <(pkg-config --cflags "${packages[@]}")
read -ra package_libs < <(pkg-config --libs "${packages[@]}")
flags=(-std=c++20 -O1 -g1 -I. "-I$protos" "-fsanitize=fuzzer-no-link,address,undefined" -fno-sanitize-recover=all
  -fsanitize-ignorelist=tools/fuzz_ignore.txt "${package_flags[@]}")
# Any header may be in any object.
newest_header=$(find -L planner "$protos" -name '*.h' -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
for source in "${sources[@]}"; do
  object=$out/${source//\//_}.o
  [[ $object -nt $source && $object -nt $newest_header ]] || clang++ "${flags[@]}" -c -o "$object" "$source"
done
clang++ -fsanitize=fuzzer,address,undefined -o "$out/fuzz_problem" "$out"/*.o "${package_libs[@]}"
exec "$out/fuzz_problem" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -max_len=65536 -artifact_prefix="$out/" "$@" \
  build/fuzz-corpus planner/testing/corpus
