"""The planner service itself: who leads, how fast it acknowledges and plans, and what it refuses."""

from deploy.grafana.vocabulary import (
    BYTES,
    COUNT,
    PER_SECOND,
    RATIO,
    SECONDS,
    THIRD,
    Series,
    dashboard,
    graph,
    number,
    rows,
    timeline,
    variable,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

_HERE = '{instance=~"$instance"}'
_ROLES = {"1": ("leads", "green"), "0": ("stands by", "blue")}
# Of each histogram: (quantile, what it is called).
_QUANTILES = ((0.5, "median"), (0.99, "99th percentile"))


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate(tidetape_server_{metric}{_HERE}[$__rate_interval]))"


def _quantiles(metric: str) -> list[Series]:
    buckets = _rate(f"{metric}_bucket", "instance, le")
    return [Series(f"histogram_quantile({quantile}, {buckets})", f"{{{{instance}}}} {name}") for quantile, name in _QUANTILES]


def build() -> Dashboard:
    result = dashboard(
        "Planner",
        "The planner service itself: who leads, how fast it acknowledges and plans, and what it refuses.",
        variable("instance", "Server", "tidetape_server_leader", "instance", many=True),
    )
    result.with_row(Row("Now"))
    for panel in (
        number(
            "Servers up",
            "Servers that Prometheus can scrape",
            COUNT,
            'sum(up{job="tidetape"})',
            alerts=["TidetapeServerDown"],
            bad_below=1,
        ),
        number(
            "Leaders",
            "Servers that have the lease: one",
            COUNT,
            "sum(tidetape_server_leader)",
            alerts=["TidetapeNoLeader"],
            bad_below=1,
        ),
        number("Ready", "Servers where agents may be sent", COUNT, "sum(tidetape_server_ready)", bad_below=1),
        number(
            "Store takes writes",
            "Of the servers that lead",
            COUNT,
            "sum(tidetape_server_store_up and on (instance) tidetape_server_leader == 1)",
            alerts=["TidetapeStoreDown"],
            bad_below=1,
        ),
        number("Streams", "Open streams of agents and watchers", COUNT, f"sum(tidetape_server_streams{_HERE})"),
        number(
            "Jobs without series",
            "More jobs than the server exports: alerts do not see them",
            COUNT,
            f"sum(tidetape_server_jobs_left_out{_HERE})",
            alerts=["TidetapeJobsLeftOut"],
            bad_from=1,
        ),
    ):
        result.with_panel(panel)
    result.with_panel(
        rows(
            "Servers",
            "Version, memory and jobs of each server",
            Series(f"max by (instance, version) (tidetape_build_info{_HERE})", "Version"),
            Series(f"max by (instance) (tidetape_server_leader{_HERE})", "Leads", COUNT),
            Series(f"max by (instance) (tidetape_server_jobs{_HERE})", "Jobs", COUNT),
            Series(f"max by (instance) (tidetape_server_ranks_left_out{_HERE})", "Ranks without series", COUNT),
            Series(
                f"max by (instance) (process_resident_memory_bytes{_HERE} and on (instance) tidetape_build_info)", "Memory", BYTES
            ),
            height=6,
        )
    )
    result.with_panel(
        timeline(
            "Leader", "Which server leads", _ROLES, Series(f"max by (instance) (tidetape_server_leader{_HERE})", "{{instance}}")
        )
    )
    result.with_row(Row("Agents"))
    for panel in (
        graph(
            "Messages",
            "Messages of agents that were read, by kind",
            PER_SECOND,
            Series(_rate("messages_total", "kind"), "{{kind}}"),
        ),
        graph(
            "Time to acknowledge",
            "From reading a message to its acknowledgement, with the store's write",
            SECONDS,
            *_quantiles("acknowledgement_seconds"),
            alerts=["TidetapeAcknowledgementsSlow"],
        ),
        graph(
            "Streams over time",
            "Open streams of agents and watchers",
            COUNT,
            Series(f"tidetape_server_streams{_HERE}", "{{instance}}"),
        ),
        graph(
            "Refused and ended",
            "Calls refused before they began, streams ended with an error, and events that watchers were too slow for",
            PER_SECOND,
            Series(_rate("calls_refused_total", "reason"), "refused: {{reason}}"),
            Series(_rate("streams_closed_total", "reason"), "stream ended: {{reason}}"),
            Series(_rate("watch_events_dropped_total", "instance"), "events dropped: {{instance}}"),
            alerts=["TidetapeCallsRefused"],
        ),
    ):
        result.with_panel(panel)
    result.with_row(Row("Planning"))
    for panel in (
        graph("Time to plan", "Computing one plan of a step", SECONDS, *_quantiles("planning_seconds")),
        graph(
            "Plans",
            "Plans computed, and plans that could not be",
            PER_SECOND,
            Series(_rate("planning_seconds_count", "instance"), "{{instance}}"),
            Series(_rate("planning_failures_total", "instance"), "{{instance}} failed"),
            alerts=["TidetapePlanningFails"],
        ),
        graph(
            "Why plans were made",
            "Plans that were committed in the last minutes, by cause",
            COUNT,
            Series(f"sum by (cause) (increase(tidetape_server_plans_committed_total{_HERE}[$__rate_interval]))", "{{cause}}"),
        ),
        graph(
            "Queues",
            "Tasks that wait (intake: hellos and tapes), and tasks refused a second because a queue was full",
            COUNT,
            Series(f"sum by (queue) (tidetape_server_queue_tasks{_HERE})", "{{queue}} waiting"),
            Series(_rate("tasks_refused_total", "queue"), "{{queue}} refused"),
            alerts=["TidetapeTasksRefused"],
        ),
    ):
        result.with_panel(panel)
    result.with_row(Row("Store"))
    for panel in (
        graph(
            "Time of a transaction",
            "To stable storage. No data with --store=memory",
            SECONDS,
            *_quantiles("store_write_seconds"),
            span=THIRD,
            alerts=["TidetapeAcknowledgementsSlow"],
        ),
        graph(
            "Writes in a transaction",
            "Writes that shared one: it grows with the load",
            COUNT,
            Series(
                f"{_rate('store_batch_writes_sum', 'instance')} / {_rate('store_batch_writes_count', 'instance')}", "{{instance}}"
            ),
            span=THIRD,
        ),
        graph(
            "Transactions",
            "Committed or not, and not committed",
            PER_SECOND,
            Series(_rate("store_write_seconds_count", "instance"), "{{instance}}"),
            Series(_rate("store_failures_total", "instance"), "{{instance}} failed"),
            span=THIRD,
            alerts=["TidetapeStoreDown"],
        ),
    ):
        result.with_panel(panel)
    result.with_row(Row("Process"))
    for panel in (
        graph(
            "CPU",
            "Cores in use. 1 is one core all the time",
            COUNT,
            Series(
                f"rate(process_cpu_seconds_total{_HERE}[$__rate_interval]) and on (instance) tidetape_build_info", "{{instance}}"
            ),
            span=THIRD,
        ),
        graph(
            "Memory",
            "In RAM, and of it tapes that are not complete yet",
            BYTES,
            Series(f"process_resident_memory_bytes{_HERE} and on (instance) tidetape_build_info", "{{instance}}"),
            Series(f"tidetape_server_partial_tape_bytes{_HERE}", "{{instance}} partial tapes"),
            span=THIRD,
        ),
        graph(
            "File descriptors",
            "Share in use; without free ones no agent can connect",
            RATIO,
            Series(f"process_open_fds{_HERE} / process_max_fds and on (instance) tidetape_build_info", "{{instance}}"),
            span=THIRD,
            alerts=["TidetapeFewDescriptorsLeft"],
            most=1,
        ),
    ):
        result.with_panel(panel)
    return result
