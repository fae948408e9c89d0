"""The demo's table and its page."""

from __future__ import annotations

import html
import io
from pathlib import Path

from tidetape.demo.planner import Frontier
from tidetape.demo.variant import Run

_HEADINGS = ("variant", "limit MB", "step ms", "measured peak MB", "predicted peak MB", "replay ms", "saved MB", "loss")


def _mb(count: int) -> str:
    return f"{count / 1e6:.2f}"


def rows(runs: list[Run]) -> list[tuple[str, ...]]:
    """One a run; "-" where a figure does not apply."""
    result = []
    for run in runs:
        planned = bool(run.planned_steps())
        result.append(
            (
                run.name,
                _mb(run.limit_bytes) if run.limit_bytes is not None else "-",
                f"{1e3 * run.seconds():.0f}",
                _mb(run.peak_bytes()),
                _mb(run.predicted_peak_bytes()) if planned else "-",
                f"{1e3 * run.replay_seconds():.1f}" if planned else "-",
                _mb(run.saved_bytes()) if planned else "-",
                f"{run.final_loss():.4f}",
            )
        )
    return result


def text_table(runs: list[Run]) -> str:
    lines = [_HEADINGS, *rows(runs)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADINGS))]

    def row(cells: tuple[str, ...]) -> str:
        return "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )

    return "\n".join([row(lines[0]), "  ".join("-" * width for width in widths), *map(row, lines[1:])])


def write_page(path: Path, runs: list[Run], frontier: Frontier | None, notes: list[str]) -> None:
    """A page without outside assets: the frontier with every run's measured point, memory through the step, the table."""
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(runs))
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in _HEADINGS)
    path.write_text(
        _PAGE.format(
            frontier=_frontier_chart(runs, frontier),
            memory=_memory_chart(runs),
            head=head,
            rows=cells,
            notes="".join(f"<li>{html.escape(note)}</li>" for note in notes),
        )
    )


def _figure():
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"font.size": 10, "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    # Without the XML declaration, which has no place inside a page.
    text = out.getvalue()
    return text[text.index("<svg") :]


def _frontier_chart(runs: list[Run], frontier: Frontier | None) -> str:
    figure, axes = _figure()
    if frontier is not None:
        points = sorted(frontier.points)
        axes.plot([x / 1e6 for x, _ in points], [1e3 * y for _, y in points], color="#2a6f97", label="the planner's frontier")
    plain = runs[0].seconds()
    for run in runs:
        # Checkpointing has no meter of its replay: what its step takes longer than plain is that.
        planned = bool(run.planned_steps())
        extra = run.replay_seconds() if planned else max(0.0, run.seconds() - plain)
        color = "#c8553d" if planned else "#333333"
        axes.plot([run.peak_bytes() / 1e6], [1e3 * extra], "o" if planned else "s", color=color)
        axes.annotate(run.name, (run.peak_bytes() / 1e6, 1e3 * extra), xytext=(5, 5), textcoords="offset points", fontsize=9)
        if run.limit_bytes is not None and run.feasible:
            axes.axvline(run.limit_bytes / 1e6, color="#c8553d", alpha=0.25, linestyle=":")
    axes.set_xlabel("step peak of the worst rank, MB")
    axes.set_ylabel("recomputation a step, ms")
    axes.set_ylim(bottom=0)
    if frontier is not None:
        axes.legend(frameon=False)
    return _svg(figure)


def _memory_chart(runs: list[Run]) -> str:
    figure, axes = _figure()
    for run in runs:
        if run.live_bytes:
            axes.plot([value / 1e6 for value in run.live_bytes], label=run.name, linewidth=1.2)
    axes.set_xlabel("mark within the step (block boundaries, forward then backward)")
    axes.set_ylabel("live memory of rank 0, MB")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return _svg(figure)


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tidetape demo</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; }}
  body {{ color: #222; background: #fff; }}
  figure {{ margin: 1.5rem 0; }}
  svg {{ width: 100%; height: auto; }}
  .wide {{ overflow-x: auto; }}
  table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
  th, td {{ padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }}
  th:first-child, td:first-child {{ text-align: left; }}
</style>
<h1>One model, several memory limits</h1>
<p>Squares ran without Tidetape, dots with it. Dotted lines are the limits that were asked for.</p>
<figure>{frontier}<figcaption>Less memory costs recomputation: where each run stands.</figcaption></figure>
<figure>{memory}<figcaption>Memory through one step.</figcaption></figure>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>
<ul>{notes}</ul>
</html>
"""
