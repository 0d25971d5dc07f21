"""The memory that control flow takes within itself, which is the workspace of the one op.

A workspace is one chunk of the arena, a body asks for many: each counts as the arena gives it.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.onnxio.model import Body
from checkmate.onnxio.sizes import count_nbytes
from checkmate.onnxio.views import find_source
from checkmate.placement import round_up


def count_workspace_nbytes(bodies: Sequence[Body]) -> int:
    """Return what an op with these bodies takes beside what it reads and makes.

    What a body makes for the outside is not counted: it is, in the last turn, what the op makes.
    """
    return max((body.held_nbytes + _count_peak_nbytes(body) for body in bodies), default=0)


def _count_peak_nbytes(body: Body) -> int:
    """Return the most that one turn holds of what is neither given nor handed on."""
    deaths = _find_deaths(body)
    sizes: dict[str, int] = {}
    live_nbytes = peak_nbytes = 0
    for position, wiring in enumerate(body.wirings):
        for name in wiring.makes:
            is_kept = name in body.outputs or find_source(wiring.node, body.outputs) is not None
            sizes[name] = 0 if is_kept else round_up(count_nbytes(name, body.types[name]))
            live_nbytes += sizes[name]
        inner = body.bodies.get(wiring.makes[0], ())
        peak_nbytes = max(peak_nbytes, live_nbytes + count_workspace_nbytes(inner))
        live_nbytes -= sum(sizes[name] for name in deaths[position])
    return peak_nbytes


def _find_deaths(body: Body) -> list[list[str]]:
    """Return, per position, what nothing reads after it, views included."""
    last = {name: i for i, wiring in enumerate(body.wirings) for name in wiring.makes}
    for position, wiring in enumerate(body.wirings):
        last.update((name, position) for name in wiring.reads if name in last)
    for wiring in reversed(body.wirings):
        source = find_source(wiring.node, body.outputs)
        if source in last:
            last[source] = max(last[source], last[wiring.makes[0]])
    deaths: list[list[str]] = [[] for _ in body.wirings]
    for name, position in last.items():
        deaths[position].append(name)
    return deaths
