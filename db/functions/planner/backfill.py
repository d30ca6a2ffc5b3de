"""Held hosts during a tick: who may use them (reference section 3.2).

A held host is its owner's. Others may borrow its idle cores (backfill) if they are known to give them back before the
owner can start: never while the host still lacks the owner's cores, and never a layer without history.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from planner.model import Ask, Busy, Host, Layer, Reservation, Settings, State
from planner.size import fits_empty
from planner.sizing import Sizes
from planner.width import Widths


def need(layer: Layer, host: Host) -> Ask:
    """What one frame of the layer needs of the host at least."""
    cores = layer.cores_min if layer.cores_min > 0 else host.cores
    return Ask(cores, layer.mem_min, layer.gpus_min, layer.gpu_mem_min)


def fits_at(ask: Ask, host: Host, running: Tuple[Busy, ...], now_s: float, unknown_s: float) -> float:
    """When the host has `ask` idle, as its running procs end; inf if it never has by what is known of them.

    A proc that should have ended before now, or by `unknown_s` if its end is unknown, counts as ending then.
    """
    cores, mem, gpus, gpu_mem = host.idle_cores, host.idle_mem, host.idle_gpus, host.idle_gpu_mem
    at = now_s
    ends = sorted((unknown_s if busy.end_s == float("inf") else max(busy.end_s, now_s), busy) for busy in running)
    for end_s, busy in ends:
        if cores >= ask.cores and mem >= ask.mem and gpus >= ask.gpus and gpu_mem >= ask.gpu_mem:
            return at
        cores, mem, gpus, gpu_mem = cores + busy.cores, mem + busy.mem, gpus + busy.gpus, gpu_mem + busy.gpu_mem
        at = end_s
    if cores >= ask.cores and mem >= ask.mem and gpus >= ask.gpus and gpu_mem >= ask.gpu_mem:
        return at
    return float("inf")


class Hold(NamedTuple):
    """A held host."""

    owner: int  # the layer's order
    cores: int  # points that the owner needs
    needed_s: float  # until then others may borrow idle cores; now or before: nobody may


class Holds:
    """The reservations that stand at a tick's start."""

    def __init__(self, hosts: List[Host], sizes: Sizes, settings: Settings, state: State) -> None:
        self.by_host: Dict[int, Hold] = {}
        self.by_owner: Dict[int, List[int]] = {}  # order -> indexes of its hosts
        self.open: List[int] = []  # hosts that take backfill
        self.ended: List[str] = []  # pk_host of reservations that do not stand any more
        self.widths: Optional[Widths] = None  # once it was needed
        self._run_seconds = state.run_seconds
        self._now_s = state.now_s
        if not state.reservations:
            return
        orders: Dict[str, List[int]] = {}
        for layer in sizes.layers:
            orders.setdefault(layer.pk_layer, []).append(layer.order)
        indexes = {host.pk_host: host.index for host in hosts}
        self.widths = Widths(hosts)
        for held in state.reservations:
            index = indexes.get(held.pk_host)
            # Frames of the layer that ask for more than its others come last, and have the host if they fit.
            if index is None or not any(
                self._claim(held, order, hosts[index], sizes, settings, state)
                for order in reversed(orders.get(held.pk_layer, []))
            ):
                self.ended.append(held.pk_host)

    def _claim(
        self, held: Reservation, order: int, host: Host, sizes: Sizes, settings: Settings, state: State
    ) -> bool:
        """Keep the host for the layer, if it still waits for it; whether it does."""
        layer = sizes.on(order, host)
        # Wide by the size that grants are made by.
        if layer is None or not self._stands(held, layer, host, settings) or self.widths is None:
            return False
        if not self.widths.wide(sizes.layers[order]):
            return False
        self._keep(host, layer, settings, state)
        return True

    @staticmethod
    def _stands(held: Reservation, layer: Layer, host: Host, settings: Settings) -> bool:
        """Whether the owner still waits for this host as it did: not paused, killed, re-prioritised or moved away."""
        return (
            settings.reservations_enabled and not layer.gates
            and layer.priority == held.priority and fits_empty(layer, host)
        )  # fmt: skip

    def _keep(self, host: Host, layer: Layer, settings: Settings, state: State) -> None:
        ask = need(layer, host)
        needed_s = state.now_s
        if settings.backfill_enabled and host.idle_cores >= ask.cores:
            # What ends at a time unknown may end now: the owner must not find its host lent away.
            needed_s = fits_at(ask, host, state.ready.get(host.pk_host, ()), state.now_s, state.now_s)
            if needed_s == float("inf"):
                needed_s = state.now_s
            if needed_s > state.now_s:
                self.open.append(host.index)
        self.by_host[host.index] = Hold(layer.order, ask.cores, needed_s)
        self.by_owner.setdefault(layer.order, []).append(host.index)

    def admits(self, layer: Layer, host: Host) -> bool:
        """Whether the layer may book the host as far as holds go."""
        hold = self.by_host.get(host.index)
        if hold is None or hold.owner == layer.order:
            return True
        if host.idle_cores < hold.cores or hold.needed_s <= self._now_s:
            return False
        runs_s = self._run_seconds.get(layer.pk_layer)
        return runs_s is not None and self._now_s + runs_s <= hold.needed_s

    def borrowed(self, layer: Layer, index: int) -> bool:
        """Whether a booking of the layer there is a backfill."""
        hold = self.by_host.get(index)
        return hold is not None and hold.owner != layer.order

    def borrower(self, layer: Layer) -> bool:
        """Whether any held host is open to the layer."""
        return bool(self.open) and layer.pk_layer in self._run_seconds
