"""Generated farms for the planner's properties: small, crowded, and full of corners."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from planner.model import Caps, Host, Layer, Settings

GIB = 1 << 20  # KiB


class Farm(NamedTuple):
    """Input of one plan. `hosts()` builds fresh hosts each time, since planning uses them up."""

    host_specs: list[tuple[int, str, int, tuple[int, int, int, int], tuple[int, int, int, int]]]
    layers: list[Layer]
    caps: Caps
    settings: Settings
    seed: int

    def hosts(self) -> list[Host]:
        return [
            Host(index, f"host{index}", f"host{index}", group, alloc, mode, total, idle)
            for index, (group, alloc, mode, total, idle) in enumerate(self.host_specs)
        ]


@st.composite
def farms(draw: st.DrawFn, max_hosts: int = 8, max_layers: int = 6) -> Farm:
    """Few classes of hosts and of frames, so that ties, full hosts and shared caps are the rule."""
    classes = [(400, 8 * GIB, 0, 0), (800, 16 * GIB, 0, 0), (1600, 24 * GIB, 2, 8 * GIB), (250, 3 * GIB, 0, 0)]
    host_specs = []
    for _ in range(draw(st.integers(1, max_hosts))):
        total = draw(st.sampled_from(classes))
        group = draw(st.integers(0, 2))
        whole = draw(st.booleans())
        idle = (
            total
            if whole
            else (
                draw(st.integers(0, total[0] // 50)) * 50,
                draw(st.integers(0, total[1] // (GIB // 2))) * (GIB // 2),
                draw(st.integers(0, total[2])),
                draw(st.integers(0, total[3] // GIB)) * GIB,
            )
        )
        host_specs.append((group, f"alloc{group % 2}", draw(st.sampled_from((0, 0, 0, 1, 2))), total, idle))
    layers = []
    for order in range(draw(st.integers(1, max_layers))):
        groups = frozenset(draw(st.sets(st.integers(0, 2), max_size=3)))
        pinned = frozenset(draw(st.sets(st.integers(0, len(host_specs) - 1), max_size=2))) or None
        gpus = draw(st.sampled_from((0, 0, 0, 1)))
        layers.append(
            Layer(
                order,
                f"layer{order}",
                f"job{draw(st.integers(0, 2))}",
                f"show{draw(st.integers(0, 1))}",
                f"folder{draw(st.integers(0, 1))}",
                draw(st.sampled_from((-5, 0, 1, 10, 100, 1000))),
                draw(st.integers(1, 12)),
                draw(st.sampled_from((50, 100, 100, 200, 400, 800, 0, -100))),
                draw(st.sampled_from((0, 0, 200))),
                draw(st.integers(1, 12)) * (GIB // 4),
                gpus,
                draw(st.sampled_from((0, GIB))) if gpus else 0,
                draw(st.booleans()),
                groups,
                pinned,
                draw(st.sampled_from(((), (), (), (), ("job paused",)))),
            )
        )
    caps = Caps(
        {f"job{n}": (draw(st.integers(0, 30)) * 100, draw(st.integers(0, 3))) for n in range(3)},
        {"folder0": (draw(st.integers(0, 40)) * 100, draw(st.integers(0, 3)))},
        {
            (f"show{show}", f"alloc{alloc}"): draw(st.integers(0, 50)) * 100
            for show in range(2)
            for alloc in range(2)
            if draw(st.integers(0, 3))
        },
        {"licence": draw(st.integers(0, 10))},
        {layer.pk_layer: ("licence",) for layer in layers if draw(st.integers(0, 4)) == 0},
    )
    settings = Settings(
        weight_gpus=draw(st.sampled_from((4.0, 0.0))),
        layer_candidates_per_group_max=draw(st.sampled_from((2000, 2000, 2, 1))),
        job_frame_dispatch_max=draw(st.sampled_from((0, 0, 0, 2))),
        host_frame_dispatch_max=draw(st.sampled_from((0, 0, 0, 3))),
    )
    return Farm(host_specs, layers, caps, settings, draw(st.integers(0, 2**32)))
