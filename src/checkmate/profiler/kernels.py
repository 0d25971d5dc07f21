"""Ops that a provider has no kernel for, found before anything is measured or solved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from checkmate.errors import RunError
from checkmate.onnxio.model import Model
from checkmate.profiler.one_op import UnmeasurableError, build_one_op
from checkmate.profiler.signature import find_kind
from checkmate.profiler.surroundings import Surroundings, survey
from checkmate.runtime.protocol import PlaceTask, Provider, Settings
from checkmate.runtime.worker import Limits, Worker

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Ops of one kind that do not run on the provider."""

    op_type: str
    ops: tuple[str, ...]
    """Their names, in graph order."""
    reason: str | None
    """Why onnxruntime refuses them; None: they run on the CPU instead."""


def find_unplaced(model: Model, provider: Provider) -> tuple[Unplaced, ...]:
    """Return the ops of ``model`` that ``provider`` has no kernel for, in graph order.

    One session for each kind of op (operator, version, attributes, element types), of a model of
    that op alone. Ops with subgraphs, and ops on types that are never run, are left out.
    """
    around = survey(model)
    kinds: dict[str, list[int]] = {}
    for position, node in enumerate(model.nodes):
        kinds.setdefault(find_kind(node, around), []).append(position)
    with Worker(Limits(timeout_s=_TIMEOUT_S)) as worker:
        return tuple(_find(model, provider, list(kinds.values()), worker))


def _find(
    model: Model, provider: Provider, kinds: list[list[int]], worker: Worker
) -> Iterator[Unplaced]:
    around = survey(model)
    for positions in kinds:
        node = model.nodes[positions[0]]
        try:
            if _is_placed(node, around, provider, worker):
                continue
            reason = None
        except UnmeasurableError:
            continue
        except RunError as error:
            reason = error.message
        names = tuple(model.graph.ops[position].name for position in positions)
        yield Unplaced(node.op_type, names, reason)


def _is_placed(
    node: onnx.NodeProto, around: Surroundings, provider: Provider, worker: Worker
) -> bool:
    path = worker.folder / "one_op.onnx"
    path.write_bytes(build_one_op(node, around, 1).proto.SerializeToString())
    return bool(worker.ask(PlaceTask(str(path), Settings(provider)))["is_placed"])
