"""All jobs at a glance."""

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
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

# The jobs' own figures, where one server of several has just taken over from another.
_BY_JOB = "max by (job)"
_STATE = "max by (job, state) (tidetape_job_state == 1)"
_PLACE = "max by (job, namespace, node, slurm_job_id) (tidetape_job_info)"
_LIMIT_RATIO = f"{_BY_JOB} (tidetape_job_step_peak_bytes / on (instance, job) tidetape_job_memory_limit_bytes)"
_REPLAY_RATIO = f"{_BY_JOB} (tidetape_job_replay_seconds / on (instance, job) tidetape_job_step_seconds)"
_JOB_URL = "/d/tidetape-job?var-job=${__value.text}&var-datasource=${datasource}"


def build() -> Dashboard:
    result = dashboard("Fleet", "Which jobs run, which of them need a look, and what the fleet's memory limits cost.")
    result.with_row(Row("Now"))
    for panel in (
        number("Jobs that run", "All ranks run the committed plan", COUNT, 'sum(tidetape_job_state{state="running"})'),
        number(
            "Jobs on their way",
            "They gather measurements, or switch to a new plan",
            COUNT,
            'sum(tidetape_job_state{state=~"gathering|switching"})',
        ),
        number(
            "Jobs lost",
            "No rank is connected, and none said goodbye",
            COUNT,
            'sum(tidetape_job_state{state="lost"})',
            alerts=["TidetapeJobLost"],
            bad_from=1,
        ),
        number("Ranks connected", "Of all jobs", COUNT, "sum(tidetape_job_ranks_connected)"),
        number(
            "Ranks missing",
            "Ranks that jobs have and that are not connected",
            COUNT,
            "sum(tidetape_job_ranks - tidetape_job_ranks_connected)",
            alerts=["TidetapeRanksMissing"],
            bad_from=1,
        ),
        number(
            "Alerts",
            "Tidetape's alerts that fire",
            COUNT,
            'count(ALERTS{alertname=~"Tidetape.+", alertstate="firing"}) or vector(0)',
            bad_from=1,
        ),
    ):
        result.with_panel(panel)
    result.with_panel(
        rows(
            "Jobs",
            "Each job, where its first rank runs, and where it stands. Click a job for its own dashboard",
            Series(_STATE, "State"),
            Series(_PLACE, "Place"),
            Series(f"{_BY_JOB} (tidetape_job_ranks_connected)", "Ranks connected", COUNT),
            Series(f"{_BY_JOB} (tidetape_job_generation)", "Generation", COUNT),
            Series(f"{_BY_JOB} (tidetape_job_step)", "Step", COUNT),
            Series(f"{_BY_JOB} (tidetape_job_step_seconds)", "Step time", SECONDS),
            Series(f"{_BY_JOB} (tidetape_job_step_peak_bytes)", "Step peak", BYTES),
            Series(_LIMIT_RATIO, "Step peak / limit", RATIO),
            Series(_REPLAY_RATIO, "Replay / step", RATIO),
            links={"job": _JOB_URL},
        )
    )
    result.with_panel(
        rows(
            "Alerts, pending and firing",
            "Tidetape's alerts whose condition holds now. Empty where all is well",
            Series('count by (alertname, alertstate, severity, instance, job) (ALERTS{alertname=~"Tidetape.+"})', "Alert"),
            height=6,
        )
    )
    result.with_row(Row("Over time"))
    for panel in (
        graph(
            "Jobs by state", "How many jobs are in each state", COUNT, Series("sum by (state) (tidetape_job_state)", "{{state}}")
        ),
        graph(
            "Steps reported",
            "Step reports of all ranks of each job",
            PER_SECOND,
            Series("sum by (job) (rate(tidetape_job_reports_total[$__rate_interval]))", "{{job}}"),
            alerts=["TidetapeReportsStopped"],
        ),
        graph(
            "Step peak / limit",
            "Measured step peak of the worst rank. Above 100 %: over the limit",
            RATIO,
            Series(_LIMIT_RATIO, "{{job}}"),
            alerts=["TidetapeOverLimit"],
        ),
        graph("Replay / step", "What the limit costs: share of a step spent on replay", RATIO, Series(_REPLAY_RATIO, "{{job}}")),
        graph("Step time", "Newest step, slowest rank", SECONDS, Series(f"{_BY_JOB} (tidetape_job_step_seconds)", "{{job}}")),
        graph(
            "Measured against predicted step peak",
            "How far the measured step peak is from the plan's, either way",
            RATIO,
            Series(f"abs({_BY_JOB} (tidetape_job_peak_residual_ratio))", "{{job}}"),
            alerts=["TidetapePredictionOff"],
        ),
    ):
        result.with_panel(panel)
    return result
