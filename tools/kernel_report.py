"""What the compiled CUDA kernels are made of: the registers and memory of each, as cuobjdump tells.

Prints a Markdown table: `python tools/kernel_report.py bazel-bin/collectives/kernels/libtt_kernels.so`.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FINISHES = {"0": "store", "1": "add", "2": "scale", "3": "scale and add"}
KERNEL = re.compile(r"RowSumKernelI\w*?(BFloat16|Float32)ELNS0_6FinishE(\d)E")


@dataclass(frozen=True)
class Kernel:
    """One kernel for one architecture. Bytes are of one CTA (shared) or one thread (stack, local)."""

    architecture: str
    dtype: str
    finish: str
    registers: int
    stack: int
    shared: int
    local: int


def cuobjdump() -> str | None:
    """The toolkit's, or the one that Triton brings."""
    found = shutil.which("cuobjdump")
    if found:
        return found
    triton = importlib.util.find_spec("triton")
    if triton is None or triton.origin is None:
        return None
    bundled = Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return str(bundled) if bundled.exists() else None


def kernels_of(library: Path, tool: str) -> list[Kernel]:
    """All kernels in the library, by architecture."""
    text = subprocess.check_output([tool, "--dump-resource-usage", str(library)], text=True, stderr=subprocess.STDOUT)
    kernels = []
    architecture = ""
    kernel = None
    for line in text.splitlines():
        if found := re.search(r"arch = (sm_\d+)", line):
            architecture = found.group(1)
        elif "Function" in line:
            kernel = KERNEL.search(line)
        elif kernel and "REG:" in line:
            used = {name: int(number) for name, number in re.findall(r"(\w+):(\d+)", line)}
            dtype, finish = kernel.groups()
            sizes = (used["REG"], used["STACK"], used["SHARED"], used["LOCAL"])
            kernels.append(Kernel(architecture, dtype.lower(), FINISHES[finish], *sizes))
    return sorted(kernels, key=lambda k: (int(k.architecture[3:]), k.dtype, k.finish))


def wide_accesses(library: Path, tool: str) -> dict[str, tuple[int, int]]:
    """By kernel symbol and architecture, how many loads and stores of 16 bytes there are."""
    text = subprocess.check_output([tool, "-sass", str(library)], text=True, stderr=subprocess.STDOUT)
    counts: dict[str, tuple[int, int]] = {}
    architecture = name = ""
    for line in text.splitlines():
        if found := re.search(r"arch = (sm_\d+)", line):
            architecture = found.group(1)
        elif found := re.search(r"Function : (\S+)", line):
            name = f"{architecture} {found.group(1)}"
            counts[name] = (0, 0)
        elif name:
            loads, stores = counts[name]
            counts[name] = (loads + ("LDG.E." in line and ".128" in line), stores + ("STG.E." in line and ".128" in line))
    return counts


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tool = cuobjdump()
    if tool is None:
        print("no cuobjdump: neither the CUDA toolkit nor Triton brings one", file=sys.stderr)
        return 1
    library = Path(sys.argv[1])
    print("| architecture | rows | finish | registers | stack | shared | local |")
    print("|---|---|---|---|---|---|---|")
    for k in kernels_of(library, tool):
        print(f"| {k.architecture} | {k.dtype} | {k.finish} | {k.registers} | {k.stack} | {k.shared} | {k.local} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
