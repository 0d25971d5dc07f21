"""An order of computes as values of the columns of a chain, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from checkmate.graph import OpId, TensorId
from checkmate.milp.chain import Chain
from checkmate.milp.chain_columns import ONE
from checkmate.milp.chain_frame import Frame
from checkmate.milp.chain_windows import Window
from checkmate.milp.model import BoolArray, FloatArray

Windows = Sequence[Sequence[OpId]]
"""Per stage, what is recomputed before its last op, ascending."""


def join_windows(chain: Chain, windows: Windows) -> tuple[OpId, ...]:
    """Return the order of which `split_windows` returns ``windows``."""
    order = [OpId(k) for k in range(chain.n_forward)]
    for stage, window in zip(chain.stages, windows, strict=True):
        order += [OpId(k) for k in range(stage.first, stage.last)]
        order += (*window, OpId(stage.last))
    return tuple(order)


def find_retained(chain: Chain, windows: Windows) -> BoolArray:
    """Return, per stage, and the end, and tensor, whether a forward tensor is in memory.

    It is when it is read from there on before it is made again.
    """
    graph = chain.graph
    retained = np.zeros((len(windows) + 1, len(graph.tensors)), dtype=np.bool_)
    live: set[TensorId] = set()
    for s in reversed(range(len(windows))):
        live.difference_update(chain.find_last_makes(s))
        live.update(chain.find_last_reads(s))
        for k in reversed(windows[s]):
            live.difference_update(graph.ops[k].outputs)
            live.update(chain.find_forward(graph.ops[k].inputs))
        retained[s, list(live)] = True
    return retained


def encode(frame: Frame, parts: Sequence[Window], n_cols: int, windows: Windows) -> FloatArray:
    """Return the columns' values for an order that can run; needs are as small as they can be."""
    columns = frame.columns
    values = np.zeros(n_cols)
    values[ONE] = 1.0
    ran = np.zeros_like(frame.hops.deep)
    for s, window in enumerate(windows):
        ran[s, list(window)] = True
    retained = find_retained(frame.chain, windows)
    for (s, k), column in columns.run.items():
        values[column] = ran[s, k]
    for span, column in columns.spans:
        values[column] = retained[span.least_from : span.least_to + 1, span.tensor].all()
    for k, column in columns.again.items():
        values[column] = ran[:, k].any()
    _encode_returns(frame, ran, values)
    _encode_needs(frame, parts, values)
    return values


def _encode_returns(frame: Frame, ran: BoolArray, values: FloatArray) -> None:
    for k, returns in frame.columns.returns.items():
        rest = ran[:, k] & frame.hops.deep[:, k]
        for one in returns:
            values[one.column] = rest[one.first : one.last + 1].any()
            rest[one.first : one.last + 1] = False


def _encode_needs(frame: Frame, parts: Sequence[Window], values: FloatArray) -> None:
    for part in parts:
        last = frame.chain.stages[part.stage].last
        for need in part.needs.values():
            level = 0.0
            for k, column in reversed(need):
                own = frame.columns.run[part.stage, k] if k < last else column
                level = max(level, values[own])
                values[column] = level


def decode(frame: Frame, values: FloatArray) -> list[list[OpId]]:
    """Return windows that do what the columns' values say, with the deep recomputes they need.

    A tensor is retained out of a stage when its column says so; what is missing then is made.
    """
    chain, columns = frame.chain, frame.columns
    is_on = np.append(values > 0.5, False)  # `NONE` is the last
    says = is_on[columns.state]
    live = set(np.flatnonzero(says[0]).tolist()) | _find_pinned(chain)
    windows: list[list[OpId]] = []
    for s in range(len(chain.stages)):
        near = {k for k in frame.hops.near[s] if is_on[columns.run[s, k]]}
        window = _complete(chain, s, near, live)
        windows.append(window)
        live.update(e for k in window for e in chain.graph.ops[k].outputs)
        live.update(chain.find_last_makes(s))
        live.intersection_update(set(np.flatnonzero(says[s + 1]).tolist()) | _find_pinned(chain))
    return windows


def _find_pinned(chain: Chain) -> set[int]:
    """Return the forward tensors that cannot be made again."""
    ops = zip(chain.graph.ops, chain.is_forward, strict=True)
    return {e for op, is_ in ops if is_ and not op.recomputable for e in op.outputs}


def _complete(chain: Chain, s: int, near: set[OpId], live: set[int]) -> list[OpId]:
    """Return what has to run before the last op of stage ``s``, where ``live`` is in memory."""
    graph, found = chain.graph, set(near)
    made = {e for k in near for e in graph.ops[k].outputs}
    pending = list(chain.find_last_reads(s))
    pending += [e for k in near for e in chain.find_forward(graph.ops[k].inputs)]
    while pending:
        e = pending.pop()
        maker = graph.tensors[e].producer
        if maker is None or e in live or e in made or maker in found:
            continue
        found.add(maker)
        pending += chain.find_forward(graph.ops[maker].inputs)
    return sorted(found)
