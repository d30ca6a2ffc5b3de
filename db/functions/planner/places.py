"""Where layers run, or ran lately: read in full only for the layers whose turn comes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Dict, Iterator, List, Mapping, Sequence


class Live(Mapping[str, Mapping[str, int]]):
    """pk_layer -> pk_host -> frames that run there."""

    def __init__(self, hosts: Sequence[str], layers: Sequence[str]) -> None:
        """The columns of maestro.live_procs: keys of hosts, and each one's layers, once a frame, joined by commas."""
        found: Dict[str, List[str]] = defaultdict(list)
        for pk_host, text in zip(hosts, layers):
            for pk_layer in text.split(","):
                found[pk_layer].append(pk_host)
        self._hosts = dict(found)

    def __getitem__(self, pk_layer: str) -> Mapping[str, int]:
        return Counter(self._hosts[pk_layer])

    def __contains__(self, pk_layer: Any) -> bool:
        return pk_layer in self._hosts

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)


def warm(layers: Sequence[str], hosts: Sequence[str], frames: Sequence[int]) -> Dict[str, Dict[str, int]]:
    """pk_layer -> pk_host that it left -> frames of others booked there since, by the columns of maestro.warm_hosts."""
    found: Dict[str, Dict[str, int]] = defaultdict(dict)
    for pk_layer, pk_host, count in zip(layers, hosts, frames):
        found[pk_layer][pk_host] = count
    return dict(found)
