"""One job: its memory and time against the plan's."""

from deploy.grafana.vocabulary import (
    BYTES,
    COUNT,
    RATIO,
    SECONDS,
    Series,
    dashboard,
    graph,
    number,
    of_job,
    rows,
    signed_graph,
    timeline,
    variable,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

_STATES = {"1": ("in this state", "green"), "0": ("not", "transparent")}


def build() -> Dashboard:
    result = dashboard(
        "Job",
        "One job: how its memory and time compare with the plan's prediction, and what its limit costs.",
        variable("job", "Job", "tidetape_job_info", "job"),
    )
    result.with_row(Row("$job"))
    for panel in (
        number(
            "Ranks connected",
            "Ranks that have a stream to the planner",
            COUNT,
            of_job("ranks_connected"),
            alerts=["TidetapeRanksMissing"],
        ),
        number("Ranks", "Ranks that the job has", COUNT, of_job("ranks")),
        number(
            "Ranks without the plan",
            "Ranks that cannot follow the committed plan",
            COUNT,
            of_job("ranks_without_plan"),
            alerts=["TidetapeRanksWithoutPlan"],
            bad_from=1,
        ),
        number("Generation", "Of the committed plan; 0 before the first", COUNT, of_job("generation")),
        number("Step", "Newest step that was reported", COUNT, of_job("step")),
        number(
            "Step peak / limit",
            "Measured on the worst rank",
            RATIO,
            f"{of_job('step_peak_bytes')} / {of_job('memory_limit_bytes')}",
            alerts=["TidetapeOverLimit"],
            bad_from=1,
        ),
    ):
        result.with_panel(panel)
    result.with_panel(
        timeline(
            "State",
            "The state that the job is in: gathering measurements, switching plans, running, lost, ended",
            _STATES,
            Series('max by (state) (tidetape_job_state{job="$job"})', "{{state}}"),
            alerts=["TidetapeJobLost"],
        )
    )
    result.with_panel(
        rows(
            "Where it runs",
            "Namespace, pod, node and Slurm job of the first rank. Empty columns: not given",
            Series('max by (namespace, pod, node, slurm_job_id) (tidetape_job_info{job="$job"})', "Place"),
            height=4,
        )
    )
    result.with_row(Row("Memory"))
    for panel in (
        graph(
            "Step peak",
            "Measured on the worst rank, as the plan predicts it, the limit, and the least that any plan can reach",
            BYTES,
            Series(of_job("step_peak_bytes"), "measured"),
            Series(of_job("predicted_peak_bytes"), "predicted"),
            Series(of_job("memory_limit_bytes"), "limit"),
            Series(of_job("least_peak_bytes"), "least possible"),
            alerts=["TidetapeOverLimit", "TidetapePlanInfeasible"],
        ),
        graph(
            "Saved for backward",
            "Bytes that the worst rank keeps, and bytes that the plan keeps",
            BYTES,
            Series(of_job("saved_bytes"), "measured"),
            Series(of_job("predicted_saved_bytes"), "predicted"),
        ),
        signed_graph(
            "Residual of the step peak",
            "(measured − predicted) / predicted, of the worst rank",
            RATIO,
            Series(of_job("peak_residual_ratio"), "residual"),
            alerts=["TidetapePredictionOff"],
        ),
        graph(
            "Step peak by rank",
            "Measured; of the ranks that have series of their own",
            BYTES,
            Series('max by (rank) (tidetape_rank_step_peak_bytes{job="$job"})', "rank {{rank}}"),
        ),
    ):
        result.with_panel(panel)
    result.with_row(Row("Time"))
    for panel in (
        graph(
            "Step time",
            "Newest step, slowest rank",
            SECONDS,
            Series(of_job("step_seconds"), "step"),
            alerts=["TidetapeReportsStopped"],
        ),
        graph(
            "Replay time of a step",
            "Measured on the worst rank, and as the plan predicts it",
            SECONDS,
            Series(of_job("replay_seconds"), "measured"),
            Series(of_job("predicted_replay_seconds"), "predicted"),
        ),
        graph(
            "Share of a step",
            "Replay, which the limit asks for, and the agent's own work",
            RATIO,
            Series(f"{of_job('replay_seconds')} / {of_job('step_seconds')}", "replay"),
            Series(f"{of_job('agent_seconds')} / {of_job('step_seconds')}", "agent"),
        ),
        graph(
            "Ops replayed and demoted",
            "In the newest step, worst rank. Demoted: ops that could not be replayed and are kept",
            COUNT,
            Series(of_job("replayed_ops"), "replayed"),
            Series(of_job("demoted_ops"), "demoted"),
        ),
    ):
        result.with_panel(panel)
    result.with_row(Row("Plan"))
    for panel in (
        number(
            "Plan holds the limit",
            "1: yes. 0: even the plan with the least memory exceeds it",
            COUNT,
            of_job("plan_feasible"),
            span=8,
            alerts=["TidetapePlanInfeasible"],
            bad_below=1,
        ),
        number(
            "Certified gap",
            "How much the plan's replay time may exceed the best possible, by proof",
            RATIO,
            of_job("plan_gap_ratio"),
            span=8,
        ),
        number(
            "Planning fails",
            "1 where the last attempt to plan failed",
            COUNT,
            of_job("planning_failed"),
            span=8,
            alerts=["TidetapePlanningFails"],
            bad_from=1,
        ),
    ):
        result.with_panel(panel)
    return result
