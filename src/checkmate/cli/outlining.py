"""What ``show`` says of a model without sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checkmate.cli.report import count_things
from checkmate.onnxio.outline import Given, GivenKind, Outline
from checkmate.units import format_nbytes

_N_KINDS = 6
_N_NAMES = 3

_GROUPS: Mapping[GivenKind, str] = {
    "parameter": "parameters",
    "data": "other inputs",
    "state": "state of updates",
    "constant": "constants",
}


def make_document(outline: Outline, bound: Mapping[str, int]) -> dict[str, object]:
    """Return what ``--json`` says of it; ``bound`` are the values of ``--dim``."""
    return {
        "file": {
            "ir_version": outline.ir_version,
            "opsets": dict(outline.opsets),
            "producer": outline.producer,
        },
        "op_types": dict(outline.op_types),
        "view_types": dict(outline.view_types),
        "dims": {name: list(inputs) for name, inputs in outline.dims.items()},
        "bound_dims": dict(bound),
        "missing_dims": list(find_missing(outline, bound)),
        "loss": outline.loss,
        "pinned": [{"op": op, "reason": reason} for op, reason in outline.pins],
        "given": [_describe_given(given) for given in outline.given],
    }


def find_missing(outline: Outline, bound: Mapping[str, int]) -> tuple[str, ...]:
    """Return the symbolic dimensions that ``--dim`` has yet to bind."""
    return tuple(name for name in outline.dims if name not in bound)


def _describe_given(given: Given) -> dict[str, object]:
    return {
        "name": given.name,
        "dtype": given.dtype,
        "shape": None if given.shape is None else list(given.shape),
        "kind": given.kind,
        "nbytes": given.nbytes,
    }


def list_lines(outline: Outline, bound: Mapping[str, int]) -> Iterator[str]:
    """Yield what people read of it."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in outline.opsets.items())
    producer = f"; written by {outline.producer}" if outline.producer else ""
    yield f"file: IR version {outline.ir_version}, operators {opsets}{producer}"
    yield f"ops: {_format_counts(outline.op_types)}"
    if outline.view_types:
        yield f"views: {_format_counts(outline.view_types)}"
    for name, inputs in outline.dims.items():
        more = f" and {count_things(len(inputs) - 1, 'more input')}" if len(inputs) > 1 else ""
        value = bound.get(name, "not bound")
        yield f"dimension {name}: {value}, of input {inputs[0]!r}{more}"
    yield from _list_groups(outline)
    yield f"loss: {'none found' if outline.loss is None else outline.loss}"
    yield from _list_pins(outline)


def _list_groups(outline: Outline) -> Iterator[str]:
    for kind, title in _GROUPS.items():
        group = [given for given in outline.given if given.kind == kind]
        if group:
            known = [given.nbytes for given in group if given.nbytes is not None]
            unknown = len(group) - len(known)
            parts = [format_nbytes(sum(known))] if known else []
            parts += [f"{unknown} of unknown size"] if unknown else []
            yield f"{title}: {count_things(len(group), 'tensor')}, {' and '.join(parts)}"


def _list_pins(outline: Outline) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for op, reason in outline.pins:
        reasons.setdefault(reason, []).append(op)
    for reason, ops in reasons.items():
        named = ", ".join([*ops[:_N_NAMES], "..."] if len(ops) > _N_NAMES else ops)
        yield f"run only once, {reason}: {count_things(len(ops), 'op')} ({named})"


def _format_counts(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:_N_KINDS]]
    more = len(counts) - len(shown)
    return ", ".join([*shown, f"{more} more kinds"] if more else shown) or "none"


def list_gaps(outline: Outline) -> Iterator[str]:
    """Yield what could not be understood of its phases."""
    if outline.loss is None:
        yield (
            "no output is one number of floats that could be the loss, so that no op counts as"
            " backward: name it with --loss"
        )
    elif outline.n_backward == 0:
        yield f"no op depends on the gradient of the loss {outline.loss!r}: no backward pass"
