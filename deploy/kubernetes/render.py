"""Writes what the kustomizations take from the chart: python -m deploy.kubernetes.render (or make manifests)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.kubernetes_programs import program

FOLDER = Path(__file__).resolve().parent
RELEASE = "tidetape"
_HEADER = "# Made from the chart by make manifests; change it there.\n"


def from_chart(*arguments: str) -> str:
    """The chart's manifests, as `helm install` would send them. Arguments are helm's; files are named from the chart on."""
    command = [program("helm"), "template", RELEASE, ".", *arguments]
    return subprocess.run(command, cwd=FOLDER / "chart", check=True, capture_output=True, text=True).stdout


def texts() -> dict[Path, str]:
    """What each file must hold."""
    monitor = ["--values=values-monitoring.yaml", "--show-only=templates/monitoring.yaml"]
    return {
        FOLDER / "base" / "server.yaml": _HEADER + from_chart(),
        FOLDER / "components" / "monitoring" / "monitoring.yaml": _HEADER + from_chart(*monitor),
    }


def main() -> None:
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
