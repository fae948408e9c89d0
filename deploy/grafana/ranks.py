"""The ranks of one job side by side: a collective waits for the slowest of them."""

from deploy.grafana.vocabulary import (
    BYTES,
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    Series,
    dashboard,
    graph,
    number,
    rows,
    timeline,
    variable,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

_STEP = 'tidetape_rank_step_seconds{job="$job"}'
_PEAK = 'tidetape_rank_step_peak_bytes{job="$job"}'
_CONNECTED = {"1": ("connected", "green"), "0": ("away", "red")}


def build() -> Dashboard:
    result = dashboard(
        "Ranks",
        "The ranks of one job side by side: which is slow, which uses most memory, and where they run. "
        "The server gives series of their own to the first 64 ranks of a job.",
        variable("job", "Job", "tidetape_job_info", "job"),
    )
    result.with_row(Row("$job"))
    for panel in (
        number(
            "Ranks away",
            "Ranks that are not connected",
            COUNT,
            'count(tidetape_rank_connected{job="$job"} == 0) or vector(0)',
            span=6,
            alerts=["TidetapeRanksMissing"],
            bad_from=1,
        ),
        number("Slowest rank", "Longest of the newest steps", SECONDS, f"max({_STEP})", span=6),
        number(
            "Spread of step times",
            "(slowest − fastest) / slowest: what fast ranks wait for",
            RATIO,
            f"1 - min({_STEP}) / max({_STEP})",
            span=6,
        ),
        number("Spread of step peaks", "(largest − smallest) / largest", RATIO, f"1 - min({_PEAK}) / max({_PEAK})", span=6),
    ):
        result.with_panel(panel)
    result.with_panel(
        rows(
            "Ranks",
            "Each rank, where it runs, and its newest step",
            Series('max by (rank, namespace, pod, node) (tidetape_rank_info{job="$job"})', "Place"),
            Series('max by (rank) (tidetape_rank_connected{job="$job"})', "Connected", COUNT),
            Series(f"max by (rank) ({_STEP})", "Step time", SECONDS),
            Series('max by (rank) (tidetape_rank_replay_seconds{job="$job"})', "Replay time", SECONDS),
            Series(f"max by (rank) ({_PEAK})", "Step peak", BYTES),
        )
    )
    result.with_panel(
        timeline(
            "Connected",
            "When each rank had a stream to the planner",
            _CONNECTED,
            Series('min by (rank) (tidetape_rank_connected{job="$job"})', "rank {{rank}}"),
            alerts=["TidetapeRanksMissing", "TidetapeJobLost"],
        )
    )
    result.with_row(Row("Over time"))
    for panel in (
        graph("Step time by rank", "Newest step", SECONDS, Series(f"max by (rank) ({_STEP})", "rank {{rank}}")),
        graph(
            "Replay time by rank",
            "Newest step",
            SECONDS,
            Series('max by (rank) (tidetape_rank_replay_seconds{job="$job"})', "rank {{rank}}"),
        ),
        graph(
            "Step peak by rank",
            "Measured",
            BYTES,
            Series(f"max by (rank) ({_PEAK})", "rank {{rank}}"),
            alerts=["TidetapeOverLimit"],
        ),
        graph(
            "Steps reported by rank",
            "Ranks of one job take steps together; one that lags here loses reports",
            PER_SECOND,
            Series('sum by (rank) (rate(tidetape_rank_reports_total{job="$job"}[$__rate_interval]))', "rank {{rank}}"),
            alerts=["TidetapeReportsStopped"],
        ),
    ):
        result.with_panel(panel)
    return result
