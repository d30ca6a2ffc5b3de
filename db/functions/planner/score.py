"""The placement score: opportunity cost under E-PVM (Amir et al. 2000; reference section 3.1). Lower is better.

score(h) = sum over dimensions D of W_D * (e^(after_D / total_D) - e^(before_D / total_D)) - locality bonus - seat
bonus, where before and after are the reserved shares of the host without and with the frame. The difference is computed
as (e^(ask_D / total_D) - 1) * e^(before_D / total_D): the first factor is the frame's alone, the second the host's.
"""

from __future__ import annotations

from math import exp

from planner.model import Ask, Host, Settings, Terms


def term(weight: float, used: int, ask: int, total: int) -> float:
    """One dimension's cost of reserving `ask` more where `used` of `total` is reserved; 0 if nothing is asked."""
    if ask == 0:
        return 0.0
    return weight * (exp(ask / total) - 1.0) * exp(used / total)


def terms(host: Host, ask: Ask, settings: Settings, locality: float = 0.0, seat: float = 0.0) -> Terms:
    """The terms for one frame of size `ask` on `host`. `locality` and `seat` are bonuses, 0 or more.

    What is held for gpu frames counts as reserved to the others.
    """
    cores, mem, gpus, gpu_mem = ask
    idle_cores, idle_mem = host.spare(gpus > 0 or gpu_mem > 0)
    return Terms(
        term(settings.weight_cores, host.cores - idle_cores, cores, host.cores),
        term(settings.weight_mem, host.mem - idle_mem, mem, host.mem),
        term(settings.weight_gpus, host.gpus - host.idle_gpus, gpus, host.gpus) if gpus else 0.0,
        term(settings.weight_gpu_mem, host.gpu_mem - host.idle_gpu_mem, gpu_mem, host.gpu_mem) if gpu_mem else 0.0,
        -locality,
        -seat,
    )


def total(parts: Terms) -> float:
    """The score: the terms added in their order, so that two ways to it give the same float."""
    return parts[0] + parts[1] + parts[2] + parts[3] + parts[4] + parts[5]


def score(host: Host, ask: Ask, settings: Settings, locality: float = 0.0, seat: float = 0.0) -> float:
    """The sum of `terms`, to the last bit, at half its cost for frames without gpus."""
    cores, mem, gpus, gpu_mem = ask
    if gpus or gpu_mem or host.hold_cores or host.hold_mem:
        return total(terms(host, ask, settings, locality, seat))
    all_cores, all_mem = host.cores, host.mem
    cost = settings.weight_cores * (exp(cores / all_cores) - 1.0) * exp((all_cores - host.idle_cores) / all_cores)
    if mem:
        cost += settings.weight_mem * (exp(mem / all_mem) - 1.0) * exp((all_mem - host.idle_mem) / all_mem)
    return cost - locality - seat
