"""Writes the dashboards' JSON beside this file: python -m deploy.grafana.build (or make dashboards)."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.grafana import collectives, fleet, job, planner, ranks
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).resolve().parent
DASHBOARDS = {"collectives": collectives, "fleet": fleet, "job": job, "planner": planner, "ranks": ranks}


def texts() -> dict[Path, str]:
    """What each file must hold."""
    result = {}
    for name, module in DASHBOARDS.items():
        model = module.build().build()
        for number, panel in enumerate(model.panels, start=1):
            panel.id_val = number
        # Of the data that panels ask for, only the order of panels matters; the rest is sorted, so that differences are short.
        text = json.dumps(model, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False)
        result[FOLDER / f"{name}.json"] = text + "\n"
    return result


def main() -> None:
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
