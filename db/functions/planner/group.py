"""Groups hosts of one kind, so that the candidate query matches layers to kinds and not to hosts."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, List, NamedTuple, Set, Tuple

from planner.model import THREAD_ALL


class GroupKey(NamedTuple):
    """What makes hosts equal to every gate of the candidate query."""

    pk_alloc: str
    pk_facility: str
    tags: str  # normalized
    os: str
    has_gpu: bool
    thread_all: bool


def short_name(name: str) -> str:
    """A host's name without its domain, lower case; an address stays whole."""
    lowered = name.lower()
    return lowered if lowered.replace(".", "").isdigit() else lowered.split(".")[0]


@lru_cache(maxsize=1 << 16)  # hosts' tags seldom change, and a session plans many ticks
def normalized_tags(tags: str, name: str) -> str:
    """Host tags without the host's own name (short or full, any case), duplicates and order."""
    own = {name.lower(), short_name(name)}
    return " ".join(sorted({tag for tag in tags.split() if tag.lower() not in own and short_name(tag) not in own}))


def group_hosts(specs: List[Tuple[str, str, str, str, str, bool, int]]) -> Tuple[List[GroupKey], List[int]]:
    """Number the distinct kinds of `specs` (name, alloc, facility, tags, os, has gpu, thread mode), in order of sight.

    Result: the groups' keys, and each host's group number.
    """
    numbers: Dict[GroupKey, int] = {}
    of_host = []
    for name, pk_alloc, pk_facility, tags, host_os, has_gpu, thread_mode in specs:
        key = GroupKey(
            pk_alloc, pk_facility, normalized_tags(tags, name), host_os, has_gpu, thread_mode == THREAD_ALL
        )
        of_host.append(numbers.setdefault(key, len(numbers)))
    return list(numbers), of_host


class Pins:
    """Resolves layer tags that are host names."""

    def __init__(self, names: List[str]) -> None:
        """`names`: hosts' names in snapshot order."""
        self._index: Dict[str, int] = {}
        for index, name in enumerate(names):
            self._index.setdefault(name.lower(), index)
            self._index.setdefault(short_name(name), index)
        self._seen: Dict[str, Set[int]] = {}

    def resolve(self, layer_tags: str) -> Set[int]:
        """Indexes of the hosts that alternatives of `layer_tags` name; counted once for equal tags."""
        if layer_tags not in self._seen:
            found = set()
            for tag in layer_tags.split("|"):
                name = "".join(tag.split())
                index = self._index.get(name.lower(), self._index.get(short_name(name)) if name else None)
                if index is not None:
                    found.add(index)
            self._seen[layer_tags] = found
        return self._seen[layer_tags]
