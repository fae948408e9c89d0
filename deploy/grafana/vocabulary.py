"""What the dashboards are made of: panels that all have a title, a description and a unit, and ask the same data source."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    TextBoxVariable,
    ThresholdsConfig,
)
from grafana_foundation_sdk.models.common import BigValueColorMode, BigValueGraphMode, LegendDisplayMode, VisibilityMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# Units by Grafana's names for them.
BYTES, SECONDS, RATIO, COUNT, PER_SECOND = "bytes", "s", "percentunit", "short", "cps"
# Sizes on a grid that is 24 wide.
THIRD, HALF, FULL = 8, 12, 24
GRAPH_HEIGHT, NUMBER_HEIGHT = 8, 4
TAG = "tidetape"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True)
class Series:
    """A query, and what its answer is called: in a graph with {{label}} in the name, in a table as the head of a column."""

    expression: str
    name: str
    unit: str = ""


def dashboard(name: str, description: str, *variables: QueryVariable) -> Dashboard:
    """An empty dashboard that finds its siblings by their tag."""
    siblings = (
        DashboardLink("Tidetape")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    result = (
        Dashboard(f"Tidetape / {name}")
        .uid(f"tidetape-{name.lower()}")
        .description(description)
        .tags([TAG])
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(siblings)
        .link(runbook_link())
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in variables:
        result.with_variable(variable)
    docs = TextBoxVariable("docs").label("Docs").description("Where the project's docs/ can be read: links to the runbook go there")
    return result.with_variable(docs.default_value("https://tidetape.example/docs"))


def variable(name: str, label: str, metric: str, of: str, many: bool = False) -> QueryVariable:
    """The values that the label `of` has in the metric; with `many`, several of them or all."""
    query = {"query": f"label_values({metric}, {of})", "refId": name}
    result = QueryVariable(name).label(label).query(query).datasource(SOURCE)
    result.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    return result.multi(True).include_all(True).all_value(".*") if many else result


def runbook_link(alert: str = "") -> DashboardLink:
    """To the runbook's section of the alert, or to its beginning."""
    section = f"#{alert.lower()}" if alert else ""
    title = f"Runbook: {alert}" if alert else "Runbook"
    return DashboardLink(title).type(DashboardLinkType.LINK).url(f"${{docs}}/runbook.md{section}").target_blank(True)


def _describe(panel, title, description, unit, alerts):
    panel.title(title).description(description).unit(unit).datasource(SOURCE)
    return panel.links([runbook_link(alert) for alert in alerts]) if alerts else panel


def graph(title, description, unit, *series: Series, span=HALF, alerts=(), most=None) -> timeseries.Panel:
    """Lines over time from 0. `most`: the end of the axis where the values cannot exceed it."""
    panel = _describe(timeseries.Panel(), title, description, unit, alerts)
    for letter, one in zip(ascii_uppercase, series, strict=False):
        panel.with_target(prometheus.Dataquery().ref_id(letter).range().expr(one.expression).legend_format(one.name))
    panel.height(GRAPH_HEIGHT).span(span).min(0).fill_opacity(8).show_points(VisibilityMode.NEVER)
    if most is not None:
        panel.max(most)
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement("bottom").show_legend(True)
    return panel.legend(legend)


def signed_graph(title, description, unit, *series: Series, span=HALF, alerts=()) -> timeseries.Panel:
    """As graph(), for values on both sides of 0."""
    return graph(title, description, unit, *series, span=span, alerts=alerts).min(None).axis_centered_zero(True)


def number(title, description, unit, expression, span=4, alerts=(), bad_from=None, bad_below=None) -> stat.Panel:
    """One number; red from `bad_from` on, or below `bad_below`."""
    panel = _describe(stat.Panel(), title, description, unit, alerts)
    panel.with_target(prometheus.Dataquery().ref_id("A").instant().expr(expression))
    steps = [Threshold(value=None, color="green")]
    if bad_from is not None:
        steps.append(Threshold(value=bad_from, color="red"))
    if bad_below is not None:
        steps = [Threshold(value=None, color="red"), Threshold(value=bad_below, color="green")]
    panel.thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel.color_mode(BigValueColorMode.VALUE).graph_mode(BigValueGraphMode.NONE)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.height(NUMBER_HEIGHT).span(span)


def timeline(title, description, texts: dict[str, tuple[str, str]], *series: Series, span=FULL, alerts=()) -> statetimeline.Panel:
    """Bars that change colour. `texts`: (text, colour) of each value."""
    panel = _describe(statetimeline.Panel(), title, description, COUNT, alerts)
    for letter, one in zip(ascii_uppercase, series, strict=False):
        panel.with_target(prometheus.Dataquery().ref_id(letter).range().expr(one.expression).legend_format(one.name))
    panel.mappings([ValueMap({value: ValueMappingResult(text=text, color=colour) for value, (text, colour) in texts.items()})])
    return panel.show_value(VisibilityMode.NEVER).height(NUMBER_HEIGHT + 2).span(span)


def rows(title, description, *columns: Series, height=GRAPH_HEIGHT, alerts=(), links: dict[str, str] | None = None) -> table.Panel:
    """A table with a row for each set of labels. A column without a unit shows its labels only. `links`: URL by label."""
    panel = _describe(table.Panel(), title, description, COUNT, alerts)
    names, hidden = {}, {"Time": True}
    for letter, column in zip(ascii_uppercase, columns, strict=False):
        query = prometheus.Dataquery().ref_id(letter).instant().expr(column.expression).format(PromQueryFormat.TABLE)
        panel.with_target(query)
        value = f"Value #{letter}" if len(columns) > 1 else "Value"
        if column.unit:
            names[value] = column.name
            panel.override_by_name(column.name, [DynamicConfigValue("unit", column.unit)])
        else:
            hidden[value] = True
    for label, url in (links or {}).items():
        panel.override_by_name(label, [DynamicConfigValue("links", [{"title": "Open", "url": url}])])
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options={"excludeByName": hidden, "renameByName": names}))
    return panel.height(height).span(FULL)


def of_job(metric: str) -> str:
    """The figure of the job that the dashboard's variable names."""
    return f'max(tidetape_job_{metric}{{job="$job"}})'
