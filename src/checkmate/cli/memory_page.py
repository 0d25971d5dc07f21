"""What ``show`` says of a graph's memory without recompute."""

from __future__ import annotations

from collections.abc import Sequence

from checkmate.cli.report import count_things, echo_note, print_table
from checkmate.cli.terminal import shorten
from checkmate.engine.footprint import Footprint, Kind, Life
from checkmate.graph import Graph, OpId, Tensor
from checkmate.units import format_nbytes

_N_AT_PEAK = 10
_N_LARGEST = 6
_TENSOR_WIDTH, _OP_WIDTH = 22, 15
"""Five columns fit in 80 characters."""

_KINDS: tuple[Kind, ...] = ("activation", "gradient", "output")


def make_document(graph: Graph, found: Footprint) -> dict[str, object]:
    """Return what ``--json`` says of it."""
    peak = found.peak
    parts = {f"{kind}s_nbytes": found.count_nbytes(graph, kind) for kind in _KINDS}
    return {
        "resident_nbytes": peak.resident_nbytes,
        "baseline_peak_nbytes": peak.nbytes,
        "baseline_peak_op": _name(graph, peak.op),
        "peak": {
            "position": peak.op,
            "resident_nbytes": peak.resident_nbytes,
            **parts,
            "workspace_nbytes": peak.workspace_nbytes,
            "tensors": [_describe_life(graph, life) for life in found.at_peak],
        },
        "saved_nbytes": _sum_nbytes(graph, found.saved),
        "saved": [_describe_life(graph, life) for life in found.saved],
        "bound_nbytes": found.bound_nbytes,
        "bound_op": _name(graph, found.bound_op),
        "smallest_known_nbytes": found.smallest_nbytes,
        "largest_tensors": [
            {"name": tensor.name, "nbytes": tensor.nbytes, "made_by": _name(graph, tensor.producer)}
            for tensor in _find_largest(graph, _N_AT_PEAK)
        ],
    }


def _describe_life(graph: Graph, life: Life) -> dict[str, object]:
    tensor = graph.tensors[life.tensor]
    return {
        "name": tensor.name,
        "nbytes": tensor.nbytes,
        "kind": life.kind,
        "made_by": _name(graph, life.made),
        "first_use": _name(graph, life.uses[0] if life.uses else None),
        "last_use": _name(graph, life.uses[-1] if life.uses else None),
    }


def print_memory(graph: Graph, found: Footprint) -> None:
    """Print it for people."""
    peak = found.peak
    saved = format_nbytes(_sum_nbytes(graph, found.saved))
    echo_note(f"inputs and parameters: {format_nbytes(peak.resident_nbytes)}")
    echo_note(f"saved for the backward pass: {count_things(len(found.saved), 'tensor')}, {saved}")
    echo_note(f"peak without recompute: {format_nbytes(peak.nbytes)} at {_locate(graph, peak.op)}")
    echo_note(f"  {', '.join(_list_parts(graph, found))}")
    bound = format_nbytes(found.bound_nbytes)
    echo_note(
        f"no schedule of this op order fits below {bound}, at {_locate(graph, found.bound_op)}"
    )
    if found.smallest_nbytes is not None:
        smallest = format_nbytes(found.smallest_nbytes)
        echo_note(f"smallest budget known to work: {smallest}, by a quick search")
    if found.at_peak:
        headers = ("in memory at the peak", "kind", "made by", "op, uses", "size")
        print_table(headers, [_format_life(graph, life) for life in found.at_peak[:_N_AT_PEAK]])
    rows = [
        (shorten(t.name, 38), shorten(_name(graph, t.producer), 24), format_nbytes(t.nbytes))
        for t in _find_largest(graph, _N_LARGEST)
    ]
    print_table(("largest tensors", "made by", "size"), rows)


def _list_parts(graph: Graph, found: Footprint) -> Sequence[str]:
    parts = [("resident", found.peak.resident_nbytes)]
    parts += [(f"{kind}s", found.count_nbytes(graph, kind)) for kind in _KINDS]
    parts.append(("workspace", found.peak.workspace_nbytes))
    return [f"{name} {format_nbytes(nbytes)}" for name, nbytes in parts]


def _format_life(graph: Graph, life: Life) -> tuple[str, ...]:
    tensor = graph.tensors[life.tensor]
    uses = f"{life.uses[0] + 1}-{life.uses[-1] + 1}" if life.uses else "none"
    return (
        shorten(tensor.name, _TENSOR_WIDTH),
        life.kind,
        _shorten_op(graph, life.made),
        f"{life.made + 1}, {uses}",
        format_nbytes(tensor.nbytes),
    )


def _find_largest(graph: Graph, n_largest: int) -> Sequence[Tensor]:
    made = (tensor for tensor in graph.tensors if tensor.producer is not None)
    return sorted(made, key=lambda tensor: -tensor.nbytes)[:n_largest]


def _sum_nbytes(graph: Graph, lives: Sequence[Life]) -> int:
    return sum(graph.tensors[life.tensor].nbytes for life in lives)


def _name(graph: Graph, op: OpId | None) -> str:
    return "" if op is None else graph.ops[op].name


def _shorten_op(graph: Graph, op: OpId | None) -> str:
    return shorten(_name(graph, op), _OP_WIDTH)


def _locate(graph: Graph, op: OpId | None) -> str:
    if op is None:
        return "no op"
    return f"{graph.ops[op].name} (op {op + 1} of {len(graph.ops)})"
