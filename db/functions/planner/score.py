"""The placement score: opportunity cost under E-PVM (Amir et al. 2000; reference section 3.1). Lower is better.

score(h) = sum over dimensions D of W_D * (e^(after_D / total_D) - e^(before_D / total_D)), where before and after are
the reserved shares of the host without and with the frame.
"""

from __future__ import annotations

from math import exp

from planner.model import Ask, Host, Settings


def term(weight: float, used: int, ask: int, total: int) -> float:
    """One dimension's cost of reserving `ask` more where `used` of `total` is reserved; 0 if nothing is asked."""
    if ask == 0:
        return 0.0
    return weight * (exp((used + ask) / total) - exp(used / total))


def score(host: Host, ask: Ask, settings: Settings) -> float:
    """The cost of one frame of size `ask` on `host`, summed in the fixed order cores, memory, gpus, gpu memory."""
    return (
        term(settings.weight_cores, host.cores - host.idle_cores, ask.cores, host.cores)
        + term(settings.weight_mem, host.mem - host.idle_mem, ask.mem, host.mem)
        + term(settings.weight_gpus, host.gpus - host.idle_gpus, ask.gpus, host.gpus)
        + term(settings.weight_gpu_mem, host.gpu_mem - host.idle_gpu_mem, ask.gpu_mem, host.gpu_mem)
    )
