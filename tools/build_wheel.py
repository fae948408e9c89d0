"""Makes a wheel of the agent in dist/ for the Python that runs this: the package, its native parts, tidetapectl, and the shared
libraries of Debian's that these need (gRPC, protobuf, absl), so that it runs on machines without them.

The bundled libraries get names of their own. Under their old ones the loader would take them for the system's: Python's
ssl module, imported later, would be given this OpenSSL, or these libraries another gRPC.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection
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


def own_name(library: str) -> str:
    return "libtidetape-" + library.removeprefix("lib")


def patch(binary: Path, rpath: str, bundled: Collection[str] = (), soname: str | None = None) -> None:
    """Makes the binary look for libraries along `rpath`, for the bundled ones under their own names."""

    def patchelf(*arguments: str) -> None:
        subprocess.run(["patchelf", *arguments, str(binary)], check=True)

    # One change a call: Debian's patchelf mixes up the strings of several.
    needed = subprocess.check_output(["patchelf", "--print-needed", str(binary)], text=True).split()
    renames = [part for name in needed if name in bundled for part in ("--replace-needed", name, own_name(name))]
    if renames:
        patchelf(*renames)
    if soname is not None:
        patchelf("--set-soname", soname)
    patchelf("--set-rpath", rpath)


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
    collectives = package / "_collectives.so"
    copy_writable(built / "agent" / "session" / "_C.so", extension)
    copy_writable(built / "agent" / "fsdp" / "_collectives.so", collectives)
    copy_writable(built / "agent" / "link" / "libtt_agent.so", agent)
    copy_writable(built / "server" / "tidetapectl", ctl)
    needed = {}
    for binary in (agent, ctl, collectives):
        needed.update(libraries_of(binary))
    for name, path in needed.items():
        library = package / "lib" / own_name(name)
        copy_writable(path, library)
        patch(library, "$ORIGIN", needed, soname=library.name)
    # Not the path of the torch that it was built with.
    patch(extension, "$ORIGIN/../torch/lib")
    patch(collectives, "$ORIGIN/lib:$ORIGIN/../torch/lib", needed)
    patch(agent, "$ORIGIN/lib", needed)
    patch(ctl, "$ORIGIN/../lib", needed)
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
