"""Makes a wheel of the agent in dist/ for the Python that runs this: the package, its native parts, tidetapectl, and the shared
libraries of Debian's that these need (gRPC, protobuf, absl), so that it runs on machines without them."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAGE = ROOT / "build" / "wheel"
DIST = ROOT / "dist"

# What any Linux with this C library has; bundling a part of the C library would break the process.
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.so|ld-linux|linux-vdso")
# Loaded by `import torch` before ours, or found next to it.
TORCH = re.compile(r"lib(torch|c10|shm)")


def libraries_of(binary: Path) -> dict[str, Path]:
    """Name and place of every shared library that the binary needs, at any depth, without the system's and torch's."""
    found = {}
    for line in subprocess.check_output(["ldd", str(binary)], text=True).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match is None or SYSTEM.match(match[1]) or TORCH.match(match[1]):
            continue
        if not match[2].startswith("/"):
            raise SystemExit(f"{binary.name} needs {match[1]}, which is not on this machine; run make setup")
        found[match[1]] = Path(match[2])
    return found


def set_rpath(binary: Path, rpath: str) -> None:
    subprocess.run(["patchelf", "--set-rpath", rpath, str(binary)], check=True)


def copy_writable(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)


def stage() -> Path:
    """The project as setuptools wants it, under build/: a copy, since the native parts must not lie in the source tree."""
    shutil.rmtree(STAGE, ignore_errors=True)
    package = STAGE / "agent" / "python" / "tidetape"
    shutil.copytree(ROOT / "agent" / "python" / "tidetape", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copyfile(ROOT / name, STAGE / name)
    # A wheel with native code is for one kind of machine and one Python.
    (STAGE / "setup.py").write_text(
        "from setuptools import Distribution, setup\n\n\n"
        "class Native(Distribution):\n    def has_ext_modules(self):\n        return True\n\n\nsetup(distclass=Native)\n"
    )

    built = ROOT / "bazel-bin"
    extension, agent, ctl = package / "_C.so", package / "libtt_agent.so", package / "bin" / "tidetapectl"
    copy_writable(built / "agent" / "session" / "_C.so", extension)
    copy_writable(built / "agent" / "link" / "libtt_agent.so", agent)
    copy_writable(built / "server" / "tidetapectl", ctl)
    needed = {}
    for binary in (agent, ctl):
        needed.update(libraries_of(binary))
    for name, path in needed.items():
        copy_writable(path, package / "lib" / name)
        set_rpath(package / "lib" / name, "$ORIGIN")
    # Not the path of the torch that it was built with.
    set_rpath(extension, "$ORIGIN/../torch/lib")
    set_rpath(agent, "$ORIGIN/lib")
    set_rpath(ctl, "$ORIGIN/../lib")
    return STAGE


def main() -> int:
    DIST.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, f"--wheel-dir={DIST}", str(stage())], check=True)
    tag = sysconfig.get_platform().replace("-", "_")
    wheel = max(DIST.glob(f"tidetape-*-{tag}.whl"), key=lambda path: path.stat().st_mtime)
    print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
