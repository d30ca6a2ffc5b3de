"""Layer tags that are host names: where such a layer may run, and why it may not."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from planner.group import GroupKey, short_name
from planner.model import Host

HOST_GATES = ("tags", "facility", "os", "thread mode")  # candidates' gates that speak of groups, which a pin goes past


class Named(NamedTuple):
    """What a layer's tags name."""

    hosts: FrozenSet[int]  # indexes of bookable hosts
    closed: Tuple[Tuple[str, int], ...]  # why others cannot be booked, and how many


class Verdict(NamedTuple):
    """A layer's pins and gates once its tags are resolved."""

    pinned: Optional[FrozenSet[int]]
    gates: Tuple[str, ...]
    misfits: Tuple[Tuple[str, int], ...]


class Pins:
    """Resolves layer tags. Names match in any case, short or full."""

    def __init__(self, hosts: Sequence[Host], keys: Sequence[GroupKey], closed: Mapping[str, str] = {}) -> None:
        """`keys`: the hosts' groups. `closed`: name of a host outside the snapshot -> why it is not in it."""
        self._hosts = hosts
        self._keys = keys
        self._index: Dict[str, int] = {}
        for host in hosts:
            self._index.setdefault(host.name.lower(), host.index)
            self._index.setdefault(short_name(host.name), host.index)
        self._closed: Dict[str, str] = {}
        for name, reason in closed.items():
            self._closed.setdefault(name.lower(), reason)
            self._closed.setdefault(short_name(name), reason)
        self._seen: Dict[str, Named] = {}

    def resolve(self, layer_tags: str) -> Named:
        """The hosts that alternatives of `layer_tags` name; found once for equal tags."""
        named = self._seen.get(layer_tags)
        if named is None:
            hosts = set()
            closed: Dict[str, int] = {}
            for tag in layer_tags.split("|"):
                name = "".join(tag.split()).lower()
                if not name:
                    continue
                index = self._index.get(name, self._index.get(short_name(name)))
                if index is not None:
                    hosts.add(index)
                    continue
                reason = self._closed.get(name, self._closed.get(short_name(name)))
                if reason is not None:
                    closed[reason] = closed.get(reason, 0) + 1
            self._seen[layer_tags] = named = Named(frozenset(hosts), tuple(sorted(closed.items())))
        return named

    def apply(
        self, kind: Mapping[str, Any], gates: Tuple[str, ...], misfits: Tuple[Tuple[str, int], ...]
    ) -> Verdict:
        """The pins of layers of a kind (of maestro.candidates), and their gates and misfits as they stand with them.

        A pin goes past the layers' groups, never past facility, operating system and thread mode: those are checked on
        the named host itself.
        """
        named = self.resolve(kind["tags"])
        if not named.hosts:
            if not named.closed:
                return Verdict(None, gates, misfits)
            if "tags" in gates:  # it names hosts, and all of them are away
                gates = tuple(reason for reason, _ in named.closed) + tuple(g for g in gates if g not in HOST_GATES)
            return Verdict(None, gates, misfits + named.closed)
        pinned: List[int] = []
        refused: Dict[str, int] = {}
        for index in sorted(named.hosts):
            reason = self._refusal(kind, self._keys[self._hosts[index].group])
            if reason:
                refused[reason] = refused.get(reason, 0) + 1
            else:
                pinned.append(index)
        misfits += named.closed + tuple(refused.items())
        if pinned or not kind["groups"]:
            gates = tuple(gate for gate in gates if gate not in HOST_GATES)
            if not pinned:
                gates += tuple(refused)
        return Verdict(frozenset(pinned) or None, gates, misfits)

    @staticmethod
    def _refusal(kind: Mapping[str, Any], key: GroupKey) -> str:
        """Why a named host may not run layers of the kind; empty if it may."""
        if kind["pk_facility"] != key.pk_facility:
            return "wrong facility"
        if kind["os"] and kind["os"] not in key.os.split(","):
            return "wrong os"
        if key.thread_all and not kind["threadable"]:
            return "wrong thread mode"
        return ""
