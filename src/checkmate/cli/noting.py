"""Notes on a model that is planned all the same."""

from __future__ import annotations

from collections.abc import Iterator

from checkmate.cli.report import count_things, echo_note
from checkmate.cli.source import Source
from checkmate.onnxio.doubts import find_bodied, find_complaint, find_unmasked, find_unrunnable
from checkmate.onnxio.effects import find_races
from checkmate.onnxio.model import Model
from checkmate.onnxio.seeding import find_seeded


def note_doubts(source: Source) -> None:
    """Say what is odd about the model."""
    for doubt in list_doubts(source):
        echo_note(f"note: {doubt}")


def list_doubts(source: Source) -> Iterator[str]:
    """Yield what is odd about the model."""
    model = source.model
    if model is None:
        return
    unrunnable = find_unrunnable(model)
    complaint = find_complaint(model) if unrunnable is None else None
    if unrunnable is not None:
        yield (
            f"stock onnxruntime cannot run this model, as it lacks {unrunnable} of its"
            " training build; costs are counted from shapes unless a file is given"
        )
    elif complaint is not None:
        yield f"onnx does not accept this model: {complaint}"
    yield from _list_default_doubts(model)
    yield from _list_seeded(model)
    if source.problem.costs.origin.provider != "cuda":
        yield from _list_cpu_doubts(model)


def _list_default_doubts(model: Model) -> Iterator[str]:
    """Yield what onnxruntime makes of the model by default."""
    if model.namesake is not None:
        yield (
            f"onnxruntime refuses the model as it is, in which nodes share the name"
            f" {model.namesake!r}; in the rewritten model each has a name of its own"
        )
    unmasked = find_unmasked(model)
    if unmasked is not None:
        yield (
            f"under its default options, onnxruntime may leave out {unmasked}, in the original"
            " graph too, as nobody reads its mask: run with the options that the schedule names"
        )


def _list_cpu_doubts(model: Model) -> Iterator[str]:
    halved = next((name for name, known in model.types.items() if known.is_half), None)
    if halved is not None and not model.is_optimized:
        yield (
            f"on the CPU, onnxruntime computes most ops of half precision, like that of {halved!r},"
            " in float32, between casts of its own: bytes and order of a run are not those of this"
            " plan; with --optimize basic the casts are planned too"
        )
    bodied = find_bodied(model)
    if bodied is not None:
        yield (
            f"on the CPU, onnxruntime has no kernel for {bodied} and runs what onnx defines it by,"
            " out of order: bytes and order of a run are not those of this plan; with --optimize"
            " basic they are planned too"
        )
    racing = find_races(model.nodes)
    if racing:
        yield (
            f"on the CPU, onnxruntime computes {racing[0]} wrongly with several threads, in"
            " the original graph too: run with intra_op_num_threads = 1"
        )


def _list_seeded(model: Model) -> Iterator[str]:
    """Yield what ops that draw from a seed may do, where there are any."""
    seeded = [model.graph.ops[op] for op in find_seeded(model)]
    if not seeded:
        return
    kinds = f"{count_things(len(seeded), 'op')} with a seed, {seeded[0].name!r} for one,"
    if seeded[0].recomputable:
        yield (
            f"{kinds} may run again: on the CPU, and there alone, copies draw the same numbers;"
            " after a run that failed, open a new session"
        )
    else:
        yield (
            f"{kinds} may run only once: copies draw the same numbers on the CPU alone; if the run"
            " is to be there, say --provider cpu"
        )
