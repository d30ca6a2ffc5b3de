"""Groups hosts of one kind, so that the candidate query matches layers to kinds and not to hosts."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Iterable, List, NamedTuple, Tuple

from planner.model import THREAD_ALL


class GroupKey(NamedTuple):
    """What makes hosts equal to every gate of the candidate query."""

    pk_alloc: str
    pk_facility: str
    tags: str  # normalized
    os: str
    has_gpu: bool
    thread_all: bool


@lru_cache(maxsize=1 << 16)  # hosts' names and tags seldom change, and a session plans many ticks
def short_name(name: str) -> str:
    """A host's name without its domain, lower case; an address stays whole."""
    lowered = name.lower()
    return lowered if lowered.replace(".", "").isdigit() else lowered.split(".")[0]


@lru_cache(maxsize=1 << 16)
def normalized_tags(tags: str, name: str) -> str:
    """Host tags without the host's own name (short or full, any case), duplicates and order."""
    own = {name.lower(), short_name(name)}
    return " ".join(sorted({tag for tag in tags.split() if tag.lower() not in own and short_name(tag) not in own}))


def group_hosts(specs: Iterable[Tuple[str, str, str, str, str, int, int]]) -> Tuple[List[GroupKey], List[int]]:
    """Number the distinct kinds of `specs` (name, alloc, facility, tags, os, gpus, thread mode), in order of sight.

    Result: the groups' keys, and each host's group number.
    """
    numbers: Dict[Tuple[str, str, str, str, bool, bool], int] = {}
    of_host = []
    for name, pk_alloc, pk_facility, tags, host_os, gpus, thread_mode in specs:
        kind = (pk_alloc, pk_facility, normalized_tags(tags, name), host_os, gpus > 0, thread_mode == THREAD_ALL)
        of_host.append(numbers.setdefault(kind, len(numbers)))
    return [GroupKey(*kind) for kind in numbers], of_host
