"""A chart of measured points: step peak against time, one panel a shape."""

import pathlib

import matplotlib

matplotlib.use("svg")
from matplotlib.figure import Figure

_KINDS = (("rivals", "o", "tab:gray", "rivals"), ("compile", "s", "tab:orange", "torch.compile budgets"))


def draw_points(shapes, path):
    """Writes an SVG. shapes: {name: {"rivals" | "compile": {name: figures}}}, as bench_rivals measures them."""
    figure = Figure(figsize=(6 * min(len(shapes), 3), 4.5 * -(-len(shapes) // 3)), layout="constrained")
    panels = figure.subplots(-(-len(shapes) // 3), min(len(shapes), 3), squeeze=False)
    for panel in panels.flat[len(shapes) :]:
        panel.remove()
    for panel, (name, shape) in zip(panels.flat, shapes.items(), strict=False):
        _draw_shape(panel, name, shape)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_shape(panel, name, shape):
    for kind, marker, color, label in _KINDS:
        points = {rival: values for rival, values in shape[kind].items() if "peak_over_plain" in values}
        panel.scatter(
            [values["peak_over_plain"] for values in points.values()],
            [values["time_over_plain"] for values in points.values()],
            marker=marker,
            color=color,
            label=label,
        )
        for rival, values in points.items():
            panel.annotate(
                rival, (values["peak_over_plain"], values["time_over_plain"]), fontsize=7, xytext=(3, 3), textcoords="offset points"
            )
    ours = sorted(
        (values["tidetape_peak_over_plain"], values["tidetape_over_plain"])
        for values in shape["rivals"].values()
        if "tidetape_over_plain" in values
    )
    if ours:
        panel.plot(*zip(*ours, strict=True), "-D", color="tab:blue", markersize=4, label="Tidetape")
    panel.set(title=name, xlabel="step peak / plain", ylabel="time / plain")
    panel.legend(fontsize=8)
