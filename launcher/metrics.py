"""What the launcher counts.

The reference's planner metrics come from the last tick's row (maestro.launcher_metrics), not from scanning tables. Each
launcher serves the same planner figures: aggregate them with max(), the launcher's own with sum().
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

TICK_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


class Metrics:
    """The process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.launches = Counter(
            "cue_maestro_launches", "Launches finished, by what came out.", ["outcome"], registry=registry
        )
        self.launch_seconds = Histogram(
            "cue_maestro_launch_seconds", "Time RQD took to answer a launch.", registry=registry,
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )  # fmt: skip
        self.wait_seconds = Histogram(
            "cue_maestro_wait_seconds", "Time from when a frame could run to its first start.", ["show"],
            registry=registry, buckets=(0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
        )  # fmt: skip
        self.stale_claims = Counter(
            "cue_maestro_stale_claims", "Outcomes that came too late: another launcher had taken over.",
            registry=registry,
        )  # fmt: skip
        self.salvaged = Counter(
            "cue_maestro_salvaged_completions", "Completions read from logs because RQD's report was lost.",
            registry=registry,
        )  # fmt: skip
        self.lost = Counter(
            "cue_maestro_lost_frames", "Frames found not running at their host, with nothing that tells why.",
            registry=registry,
        )  # fmt: skip
        self.orders = Counter("cue_maestro_host_orders", "Orders to hosts, by outcome.", ["outcome"], registry=registry)
        self.reports = Counter(
            "cue_maestro_reports", "Reports from RQDs, by kind and what became of them.", ["kind", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.spooled = Gauge(
            "cue_maestro_spooled_completions", "Completions on this launcher's disk, not yet in the database.",
            registry=registry,
        )  # fmt: skip
        self.held = Gauge("cue_maestro_launches_held", "Bookings this launcher has claimed.", registry=registry)
        self.healthy = Gauge("cue_maestro_launcher_healthy", "1 while every part works.", ["part"], registry=registry)
        self.planner = Planner(registry)


class Planner:
    """The planner's figures, as maestro.launcher_metrics tells them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._after_tick: int | None = None

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.waiting = gauge("cue_maestro_waiting_frames", "Waiting frames, by why.", "reason")
        self.show_cores = gauge("cue_maestro_show_cores", "Cores that a show's procs hold.", "show")
        self.stranded = gauge("cue_farm_health_stranded_cores", "Idle cores that no waiting frame fits on.")
        self.groups = gauge("cue_maestro_groups", "Host groups of the last tick.")
        self.farm_cores = gauge("cue_maestro_farm_cores", "Cores of the farm, by state.", "state")
        self.running = gauge("cue_maestro_running_frames", "Frames that hold a proc.")
        self.depths = {
            kind: (
                gauge(f"cue_maestro_{kind}_queue_depth", f"Rows of maestro.{kind} that wait."),
                gauge(f"cue_maestro_{kind}_oldest_seconds", f"Age of the oldest of them in maestro.{kind}."),
            )
            for kind in ("launch", "completion")
        }
        self.tick_age = gauge("cue_maestro_tick_age_seconds", "Age of the last tick.")
        self.booked = Counter(
            "cue_maestro_booked_frames_locality", "Frames booked, by warmth of the host.", ["kind"], registry=registry
        )
        self.dispatched = Counter("cue_maestro_frames_dispatched", "Frames booked.", ["show"], registry=registry)
        self.passes = Counter(
            "cue_maestro_group_pass", "Host groups planned, by how the tick's planning ended.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.drift = Counter("cue_maestro_drift_repaired", "Counters that ticks found wrong.", registry=registry)
        self.ticks = Histogram(
            "cue_maestro_tick_duration_seconds", "Duration of ticks.", buckets=TICK_BUCKETS, registry=registry
        )

    @property
    def after_tick(self) -> int | None:
        """The last tick counted; the next answer is to hold those after it."""
        return self._after_tick

    def take(self, answer: dict[str, Any]) -> None:
        """Bring the figures up to an answer of maestro.launcher_metrics."""
        stats = answer["stats"] or {}
        _replace(self.waiting, stats.get("waiting"))
        _replace(self.show_cores, answer["show_cores"])
        for kind, (depth, oldest) in self.depths.items():
            depth.set(answer[f"{kind}_depth"])
            oldest.set(answer[f"{kind}_oldest_seconds"])
        self.running.set(answer["running_frames"])
        self.groups.set(stats.get("groups") or 0)
        self.stranded.set(answer["stranded_cores"])
        self.farm_cores.labels("total").set(stats.get("cores") or 0)
        self.farm_cores.labels("idle").set(stats.get("idle_cores") or 0)
        self.tick_age.set(answer["tick_age_seconds"] or 0)
        first = self._after_tick is None
        self._after_tick = answer["last_tick"]
        if first:
            return  # counters count from this process's start
        _count(self.booked, answer["booked"])
        _count(self.dispatched, answer["dispatched"])
        _count(self.passes, answer["passes"])
        self.drift.inc(answer["drift_repaired"])
        for ms in answer["tick_ms"]:
            self.ticks.observe(ms / 1000)


def _replace(gauge: Gauge, values: dict[str, Any] | None) -> None:
    gauge.clear()
    for label, value in (values or {}).items():
        if isinstance(value, int | float):
            gauge.labels(label).set(value)


def _count(counter: Counter, values: dict[str, Any] | None) -> None:
    for label, value in (values or {}).items():
        counter.labels(label).inc(value)
