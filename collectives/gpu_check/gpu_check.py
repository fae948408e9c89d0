"""Builds the collectives' GPU side without Bazel and gRPC, runs what this machine can run, and writes one JSON report.

See docs/gpu.md. Needs CMake, a C++20 compiler, Abseil and GoogleTest; nvcc, NCCL and a GPU are used where they are.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).resolve().parent)]
CHECKS = ("row_sum_test", "device_test", "nccl_transport_test", "nccl_contract_test")


def build(folder: Path, nccl: Path | None, jobs: int) -> None:
    """Configures and builds; CMake says by itself what it leaves out."""
    define = f"-DNCCL_INCLUDE_DIR={nccl / 'include' if nccl else ''}"
    subprocess.run(["cmake", "-S", Path(__file__).resolve().parent, "-B", folder, define], check=True)
    subprocess.run(["cmake", "--build", folder, "--parallel", str(jobs)], check=True)


def run_check(folder: Path, name: str) -> dict:
    """One test program, and how many of its cases passed."""
    results = folder / "results" / f"{name}.xml"
    results.unlink(missing_ok=True)
    done = subprocess.run([folder / name, "--gtest_brief=1", f"--gtest_output=xml:{results}"], cwd=folder)
    cases = list(ElementTree.parse(results).iter("testcase")) if results.exists() else []
    failed = [f"{case.get('classname')}.{case.get('name')}" for case in cases if case.find("failure") is not None]
    return {"exit_code": done.returncode, "cases": len(cases), "failed": failed}


def describe_kernels(library: Path) -> dict | str:
    """Architectures and the most registers, or why there is nothing to tell."""
    import kernel_report

    if not library.exists():
        return "not built: no nvcc"
    tool = kernel_report.cuobjdump()
    if tool is None:
        return "built; no cuobjdump to read them with"
    kernels = kernel_report.kernels_of(library, tool)
    return {a: max(k.registers for k in kernels if k.architecture == a) for a in dict.fromkeys(k.architecture for k in kernels)}


def nccl_version(nccl: Path | None) -> str:
    """What ncclGetVersion says. Asked in a process of its own: torch must find its own NCCL in this one."""
    path = str(nccl / "lib" / "libnccl.so.2") if nccl else "libnccl.so.2"
    ask = f"import ctypes; n = ctypes.c_int(); ctypes.CDLL({path!r}).ncclGetVersion(ctypes.byref(n)); print(n.value)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    if done.returncode:
        return f"none: {done.stderr.strip().splitlines()[-1]}"
    number = int(done.stdout)
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def has_gpu() -> str | None:
    """None where there is one that can be used, else why not."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "CUDA finds none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu-check", help="where to build")
    parser.add_argument("--report", type=Path, default=ROOT / "build" / "gpu-check.json", help="the report to write")
    parser.add_argument(
        "--nccl", type=Path, help="folder with include/ and lib/ of NCCL 2.31 or newer (nvidia/nccl of the package)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilations at a time")
    options = parser.parse_args()
    missing = [tool for tool in ("cmake", "g++") if shutil.which(tool) is None]
    if missing:
        print(f"gpu-check: {' and '.join(missing)} not found", file=sys.stderr)
        return 2

    build(options.folder, options.nccl, options.jobs)
    library = options.folder / "libtt_kernels.so"
    report = {
        "machine": platform.machine(),
        "kernel_registers": describe_kernels(library),
        "nccl": nccl_version(options.nccl),
        "nccl_declarations_compared": bool(options.nccl) and library.exists(),
        "without_gpu": {name: run_check(options.folder, name) for name in CHECKS},
        "on_gpu": None,
    }
    good = all(check["exit_code"] == 0 for check in report["without_gpu"].values())
    why = has_gpu()
    if why is None and library.exists():
        from kernel_checks import check

        report["on_gpu"] = check(library)
        good = good and not report["on_gpu"]["wrong"]
        print(f"gpu-check: {json.dumps(report['on_gpu'])}")
    else:
        print(f"gpu-check: nothing was run on a GPU ({why or 'no nvcc to build the kernels'})")
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n")
    cases = sum(check["cases"] for check in report["without_gpu"].values())
    print(f"gpu-check: {cases} cases without a GPU {'passed' if good else 'did not all pass'}; {options.report}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
