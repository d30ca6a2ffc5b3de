"""Who waits for whom inside one spec, and whether every frame gets its turn."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

# ("frame", position), ("layer start" | "layer" | "any frame", pk_layer), ("job start" | "job", pk_job).
# A frame waits for its layer's start, that for its job's start; a layer is over when its frames are, a job when its
# layers are, "any frame" when the first frame of the layer is.
Node = Tuple[str, Any]


class _Layer(NamedTuple):
    pk_job: str
    name: str
    first: int
    frames: int


class Graph:
    def __init__(self) -> None:
        self.layers: Dict[str, _Layer] = {}
        self.jobs: Dict[str, List[str]] = {}
        self.waits: Dict[Node, List[Node]] = {}  # node -> what depends make it wait for

    def add_job(self, pk_job: str) -> None:
        self.jobs[pk_job] = []

    def add_layer(self, pk_job: str, pk_layer: str, name: str, first: int, count: int) -> None:
        """Its frames are at positions first to first + count - 1."""
        self.layers[pk_layer] = _Layer(pk_job, name, first, count)
        self.jobs[pk_job].append(pk_layer)

    def wait(self, waiting: Node, awaited: Node) -> None:
        self.waits.setdefault(waiting, []).append(awaited)

    def deadlock(self) -> Optional[List[str]]:
        """Names of layers that wait for each other in a circle, the first repeated at the end; None if all can run."""
        if not self.waits or not self._layers_may_circle():
            return None
        return self._circle(self._stuck())

    def _layers_may_circle(self) -> bool:
        """The quick test: layers and jobs as wholes. Only where they circle do single frames matter."""
        owners: Dict[int, str] = {}
        if any(node[0] == "frame" for waiting, awaited in self.waits.items() for node in (waiting, *awaited)):
            for pk_layer, layer in self.layers.items():
                owners.update(dict.fromkeys(range(layer.first, layer.first + layer.frames), pk_layer))

        def whole(node: Node) -> Node:
            if node[0] == "frame":
                return ("layer", owners[node[1]])
            return node if node[0] in ("job", "job start") else ("layer", node[1])

        after: Dict[Node, Set[Node]] = {}
        for pk_job, layers in self.jobs.items():
            after[("job start", pk_job)] = set()
            after[("job", pk_job)] = {("job start", pk_job), *(("layer", pk_layer) for pk_layer in layers)}
            for pk_layer in layers:
                after[("layer", pk_layer)] = {("job start", pk_job)}
        for waiting, awaited in self.waits.items():
            after[whole(waiting)].update(map(whole, awaited))
        counts = {node: len(nodes) for node, nodes in after.items()}
        before: Dict[Node, List[Node]] = {node: [] for node in after}
        for node, nodes in after.items():
            for other in nodes:
                before[other].append(node)
        ready = [node for node, count in counts.items() if not count]
        done = 0
        while ready:
            done += 1
            for node in before[ready.pop()]:
                counts[node] -= 1
                if not counts[node]:
                    ready.append(node)
        return done < len(after)

    def _stuck(self) -> Set[Node]:
        """Run everything that can run; what is left waits for ever."""
        counts: Dict[Node, int] = {}
        before: Dict[Node, List[Node]] = {}

        def edge(waiting: Node, awaited: Node) -> None:
            counts[waiting] = counts.get(waiting, 0) + 1
            counts.setdefault(awaited, 0)
            before.setdefault(awaited, []).append(waiting)

        for pk_job, layers in self.jobs.items():
            edge(("job", pk_job), ("job start", pk_job))
            for pk_layer in layers:
                layer = self.layers[pk_layer]
                edge(("layer start", pk_layer), ("job start", pk_job))
                edge(("job", pk_job), ("layer", pk_layer))
                for at in range(layer.first, layer.first + layer.frames):
                    edge(("frame", at), ("layer start", pk_layer))
                    edge(("layer", pk_layer), ("frame", at))
                    before[("frame", at)].append(("any frame", pk_layer))
                counts[("any frame", pk_layer)] = 1
        for waiting, nodes in self.waits.items():
            for awaited in nodes:
                edge(waiting, awaited)
        ready = [node for node, count in counts.items() if not count]
        while ready:
            node = ready.pop()
            for other in before.get(node, ()):
                counts[other] -= 1
                if counts[other] == 0:
                    ready.append(other)
        return {node for node, count in counts.items() if count > 0}

    def _circle(self, stuck: Set[Node]) -> Optional[List[str]]:
        """Walk from a stuck frame to what it waits for until a node comes again."""
        node = next((n for n in sorted(stuck, key=str) if n[0] == "frame"), None)
        if node is None:
            return None
        trail: List[Node] = []
        seen: Dict[Node, int] = {}
        while node not in seen:
            seen[node] = len(trail)
            trail.append(node)
            node = next(n for n in self._awaited(node) if n in stuck)
        names: List[str] = []
        for step in trail[seen[node] :] + [node]:
            name = self._name(step)
            if not names or names[-1] != name:
                names.append(name)
        if len(names) == 1 or names[0] != names[-1]:
            names.append(names[0])
        return names

    def _awaited(self, node: Node) -> List[Node]:
        kind, key = node
        found = list(self.waits.get(node, ()))
        if kind == "frame":
            found.append(("layer start", self._owner_of(key)))
        elif kind == "layer start":
            found.append(("job start", self.layers[key].pk_job))
        elif kind in ("layer", "any frame"):
            layer = self.layers[key]
            found += [("frame", at) for at in range(layer.first, layer.first + layer.frames)]
        elif kind == "job":
            found += [("layer", pk_layer) for pk_layer in self.jobs[key]]
        return found

    def _owner_of(self, position: int) -> str:
        return next(pk for pk, layer in self.layers.items() if layer.first <= position < layer.first + layer.frames)

    def _name(self, node: Node) -> str:
        kind, key = node
        if kind == "frame":
            return self.layers[self._owner_of(key)].name
        return self.layers[key].name if key in self.layers else "the job"
