"""How many core points a frame of a layer reserves on a host (OpenCue's thread modes and whole-host requests)."""

from __future__ import annotations

from planner.model import THREAD_ALL, THREAD_VARIABLE, Layer

ONE_CORE = 100


def cores_asked(layer: Layer, thread_mode: int, total: int, idle: int) -> int:
    """Core points for one frame of `layer` on a host with `total` points of which `idle` are free; 0: it does not fit.

    - a request of 0 is the whole host, a negative one the host less that many; both want every core idle;
    - mode ALL gives a threadable frame every whole idle core, up to the layer's maximum;
    - mode VARIABLE gives a threadable frame of one core two, or refuses it.
    """
    ask = layer.cores_min
    if ask <= 0:
        ask += total
        return ask if ask > 0 and idle == total else 0
    if layer.threadable and ask >= ONE_CORE:
        if thread_mode == THREAD_ALL:
            whole = idle - idle % ONE_CORE
            ask = max(ask, min(whole, layer.cores_max) if layer.cores_max else whole)
        elif thread_mode == THREAD_VARIABLE:
            ask = max(ask, 2 * ONE_CORE)
    return ask if ask <= idle else 0
