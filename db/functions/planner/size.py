"""How many core points a frame of a layer reserves on a host (OpenCue's thread modes and whole-host requests)."""

from __future__ import annotations

from typing import Optional

from planner.model import THREAD_ALL, THREAD_VARIABLE, Ask, Host, Layer

ONE_CORE = 100


def cores_asked(layer: Layer, thread_mode: int, total: int, idle: int, room: int) -> int:
    """Core points for one frame of `layer` on a host with `total` points of which `idle` are free; 0: it does not fit.

    - a request of 0 is the whole host, a negative one the host less that many; both want every core idle;
    - mode ALL, and a selfish service on any host, give a threadable frame every whole idle core, up to the layer's
      maximum and to `room`, the points that caps leave;
    - mode VARIABLE gives a threadable frame of one core two, or refuses it.
    """
    ask = layer.cores_min
    if ask <= 0:
        ask += total
        return ask if ask > 0 and idle == total else 0
    if layer.threadable and ask >= ONE_CORE:
        if layer.selfish or thread_mode == THREAD_ALL:
            most = min(idle, room)
            most -= most % ONE_CORE
            ask = max(ask, min(most, layer.cores_max) if layer.cores_max else most)
        elif thread_mode == THREAD_VARIABLE:
            ask = max(ask, 2 * ONE_CORE)
    return ask if ask <= idle else 0


def takes_idle(layer: Layer, thread_mode: int) -> bool:
    """Whether the size of a frame follows what is idle, so that its cost may fall as the host fills."""
    return layer.threadable and layer.cores_min >= ONE_CORE and (layer.selfish or thread_mode == THREAD_ALL)


def asked(layer: Layer, host: Host, room: int) -> Optional[Ask]:
    """What one frame reserves on the host now, at most `room` core points; None if it does not fit."""
    gpus, gpu_mem, mem = layer.gpus_min, layer.gpu_mem_min, layer.mem_min
    idle_cores, idle_mem = host.spare(gpus > 0 or gpu_mem > 0)
    if mem > idle_mem or gpus > host.idle_gpus or gpu_mem > host.idle_gpu_mem or idle_cores <= 0 or idle_mem <= 0:
        return None
    cores = cores_asked(layer, host.thread_mode, host.cores, idle_cores, room)
    return Ask(cores, mem, gpus, gpu_mem) if 0 < cores <= room else None


def fits_empty(layer: Layer, host: Host) -> bool:
    """Whether one frame fits the host with nothing on it."""
    cores = layer.cores_min if layer.cores_min > 0 else layer.cores_min + host.cores
    return (
        0 < cores <= host.cores and layer.mem_min <= host.mem
        and layer.gpus_min <= host.gpus and layer.gpu_mem_min <= host.gpu_mem
    )  # fmt: skip
