"""Grafana's dashboards: as their source says, complete, and with data in every panel while a job trains."""

import functools
import json
import re

import pytest
from deploy.grafana import build

from tests.planner_server import PlannerServer
from tests.processes import ROOT
from tests.prometheus_server import PrometheusServer
from tests.rank_training import RankTraining

DOCS = ROOT / "docs"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(build.FOLDER.glob("*.json"))}
# What Grafana would put in place of its own variables. The interval is four scrapes or more.
BUILT_IN = {"$__rate_interval": "20s"}


def panels(dashboard):
    """Those that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def query_variables(dashboard):
    return [variable for variable in dashboard["templating"]["list"] if variable["type"] == "query"]


def every_panel():
    return [
        pytest.param(panel, id=f"{name}-{panel['id']}") for name, dashboard in DASHBOARDS.items() for panel in panels(dashboard)
    ]


def test_the_files_are_what_their_source_makes():
    texts = build.texts()
    assert {path.stem for path in texts} == set(DASHBOARDS)
    for path, text in texts.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is old: run make dashboards"


def test_names_and_places_are_unique():
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS)
    for dashboard in DASHBOARDS.values():
        cells = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            mine = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
            assert not cells & mine, f"{panel['title']} lies on another panel"
            cells |= mine
        for what in ("id", "title"):
            values = [panel[what] for panel in dashboard["panels"]]
            assert len(set(values)) == len(values), what


@pytest.mark.parametrize("panel", every_panel())
def test_a_panel_says_what_it_shows_and_in_which_unit(panel):
    assert panel["title"]
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    letters = [target["refId"] for target in panel["targets"]]
    assert letters
    assert len(set(letters)) == len(letters)


def test_every_link_leads_to_a_section_of_the_runbook():
    sections = {name.lower() for name in re.findall(r"^## (\w+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)}
    linked = set()
    for dashboard in DASHBOARDS.values():
        links = dashboard["links"] + [link for panel in panels(dashboard) for link in panel.get("links") or []]
        for link in links:
            if link["type"] != "link":
                continue
            page, _, section = link["url"].partition("#")
            assert page == "${docs}/runbook.md"
            assert section in sections | {""}
            linked.add(section)
    assert linked == sections | {""}, "an alert has no panel"


def test_only_documented_metrics_are_asked_for():
    documented = set(re.findall(r"^\| `((?:tidetape|process)_\w+)", (DOCS / "operations.md").read_text(), re.MULTILINE))
    for dashboard in DASHBOARDS.values():
        expressions = [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]
        expressions += [variable["query"]["query"] for variable in query_variables(dashboard)]
        for expression in expressions:
            names = set(re.findall(r"\b(?:tidetape|process)_\w+", expression))
            names = {re.sub(r"_(bucket|sum|count)$", "", name) if name not in documented else name for name in names}
            assert names <= documented, expression


@pytest.fixture
def server(server_program, tidetapectl, tmp_path):
    planner = PlannerServer(server_program, tidetapectl, f"sqlite:{tmp_path}/store/server.db")
    planner.start()
    yield planner
    planner.stop()


def test_every_query_and_every_variable_has_data_while_a_job_trains(server, tmp_path):
    """The limit is one that no plan can hold, so that an alert is pending; the plan with the least memory is in force."""
    with (
        PrometheusServer(tmp_path, server.http_address) as prometheus,
        RankTraining(tmp_path, server.address, "1MiB", collectives="tide") as training,
    ):
        server.wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
        server.wait_for("its figures", lambda: prometheus.query("tidetape_job_peak_residual_ratio"), 60)
        values = {}
        for dashboard in DASHBOARDS.values():
            for variable in query_variables(dashboard):
                metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()
                found = prometheus.label_values(metric, label)
                assert found == [training.job if label == "job" else server.http_address], variable["name"]
                values[f"${variable['name']}"] = found[0]

        def asked(expression):
            for name, value in (values | BUILT_IN).items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            return expression

        for name, dashboard in DASHBOARDS.items():
            for panel in panels(dashboard):
                for target in panel["targets"]:
                    # Rates need two scrapes, and a moment in which something happened.
                    answer = functools.partial(prometheus.query, asked(target["expr"]))
                    server.wait_for(f"data in {name}: {panel['title']}: {target['expr']}", answer, 30)
        training.finish()
