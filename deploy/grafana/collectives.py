"""FSDP's collectives of one job: what they take, how they pace themselves, and whether all ranks do so alike."""

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
    variable,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row


def _by_rank(metric: str) -> Series:
    return Series(f'max by (rank) (tidetape_rank_{metric}{{job="$job"}})', "rank {{rank}}")


def build() -> Dashboard:
    result = dashboard(
        "Collectives",
        "FSDP's collectives of one job whose collectives are Tidetape's: their time, the bytes that go without layout copies, and "
        "the pacing that the planner chose and the ranks run.",
        variable("job", "Job", "tidetape_job_covered_ratio", "job"),
    )
    result.with_row(Row("$job"))
    for panel in (
        number("Gathering", "Time in all-gathers of the newest step, on the slowest rank", SECONDS, of_job("gather_seconds")),
        number("Reducing", "Time in reduce-scatters of the newest step, on the slowest rank", SECONDS, of_job("reduce_seconds")),
        number(
            "Share of the step",
            "Time in collectives, waiting included, over step time, on the slowest rank",
            RATIO,
            f"({of_job('gather_seconds')} + {of_job('reduce_seconds')}) / {of_job('step_seconds')}",
        ),
        number(
            "Without copies", "Share of the model's gathered bytes that goes without layout copies", RATIO, of_job("covered_ratio")
        ),
        number(
            "Pacing in force", "Generation whose pacing all ranks run; 0 for that of the start", COUNT, of_job("pacing_generation")
        ),
        number(
            "Ranks behind",
            "Ranks whose newest report is of an older pacing than another's; more than 0 for longer than a step would be a fault",
            COUNT,
            'count(tidetape_rank_pacing_generation{job="$job"} < scalar(max(tidetape_rank_pacing_generation{job="$job"}))) '
            "or vector(0)",
        ),
    ):
        result.with_panel(panel)
    result.with_panel(
        rows(
            "Committed pacing",
            "What the newest plan says of the collectives. 256 chunks in flight stand for no bound",
            Series('max by (job, algorithm) (tidetape_job_pacing_info{job="$job"})', "Algorithm"),
            Series('max by (job) (tidetape_job_pacing_chunk_bytes{job="$job"})', "Chunk", BYTES),
            Series('max by (job) (tidetape_job_pacing_puts_in_flight{job="$job"})', "Chunks in flight", COUNT),
            Series('max by (job) (tidetape_job_pacing_gap_seconds{job="$job"})', "Between chunks", SECONDS),
            Series('max by (job) (tidetape_job_predicted_gather_seconds{job="$job"})', "Predicted for all units once", SECONDS),
            height=6,
        )
    )
    result.with_row(Row("Over time"))
    for panel in (
        graph(
            "Time in collectives",
            "Of the newest step, on the slowest rank, waiting for other ranks included",
            SECONDS,
            Series(of_job("gather_seconds"), "all-gather"),
            Series(of_job("reduce_seconds"), "reduce-scatter"),
        ),
        graph(
            "Bytes of a step",
            "Gathered without layout copies, and sent to other nodes by all-gathers, on the rank with the most",
            BYTES,
            Series(of_job("covered_bytes"), "without copies"),
            Series(of_job("network_bytes"), "to other nodes"),
        ),
        graph("All-gather by rank", "Newest step", SECONDS, _by_rank("gather_seconds")),
        graph("Reduce-scatter by rank", "Newest step", SECONDS, _by_rank("reduce_seconds")),
        graph("Pacing by rank", "Generation in force; the lines lie on each other", COUNT, _by_rank("pacing_generation")),
        graph("Chunk of the committed pacing", "By the newest plan", BYTES, Series(of_job("pacing_chunk_bytes"), "chunk")),
    ):
        result.with_panel(panel)
    return result
