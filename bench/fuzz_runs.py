"""A rewritten model against the original, run by onnxruntime in a fork. Used by `bench/fuzz.py`."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx

from checkmate.costs import unit_costs
from checkmate.errors import CheckmateError
from checkmate.graph import OpId
from checkmate.liveness import insert_frees
from checkmate.onnxio.fences import find_obstacle
from checkmate.onnxio.model import Model
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.seeding import is_random, render_seeded
from checkmate.onnxio.windows import FENCES
from checkmate.problem import Problem
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import Difference, SavedArrays, compare_outputs, save_arrays
from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import Manner, Settings
from checkmate.runtime.running import Binding
from checkmate.runtime.session import Instruments, make_session
from checkmate.simulate import simulate

EQUAL = "equal"
HALVED = "runs, with halves"
REFUSED = "original refused"
TOO_LARGE = "too large to run"
GOOD = (EQUAL, HALVED, REFUSED, TOO_LARGE)
_MAX_NBYTES = 2**26
_NOISE = 1e-4
"""Of the largest element of all outputs; gradients that are zero come out as noise."""
_HALVES = (10, 16)
"""In float16 and bfloat16 the CPU provider computes most ops in float32, and rounds where its own
casts end up, which another node moves."""
_ORIGINAL = Path("original.onnx")
_REWRITTEN = Path("rewritten.onnx")
_PROCESSOR_S = 20
_MANNERS: tuple[Manner, ...] = ("scheduled", "default")
Pair = tuple[Model, onnx.ModelProto]
"""A model and what it is rewritten to."""
_SAID = Path("said.txt")
"""What the fork has come to, line by line."""


def compare_at_random(path: Path, dims: Mapping[str, int], chance: random.Random) -> str:
    """Rewrite ``path`` with recomputes and fences at random; return how the runs compare."""

    def rewrite() -> Pair:
        model = read_model(path, dims)
        schedule = insert_frees(model.graph, draw_order(chance, model))
        # Raises where the schedule reads what is not there.
        simulate(Problem(model.graph, unit_costs(model.graph)), schedule)
        fences = "none" if find_obstacle(model, "cpu") else chance.choice(FENCES)
        return model, rewrite_model(model, schedule, fences)

    return _compare_in_fork(rewrite)


def compare_written(path: Path, written: Path, dims: Mapping[str, int]) -> str:
    """Return how runs of ``path`` and of the rewritten model compare."""
    return _compare_in_fork(
        lambda: (read_model(path, dims), onnx.load(written, load_external_data=False))
    )


def draw_order(chance: random.Random, model: Model) -> list[OpId]:
    """Return the order of ``model`` with recomputes at random, alone and in runs."""
    order = [OpId(i) for i in range(len(model.graph.ops))]
    for _ in range(chance.randint(0, 8)):
        place = chance.randint(0, len(order))
        again = [op for op in sorted(set(order[:place])) if model.graph.ops[op].recomputable]
        order[place:place] = sorted(chance.sample(again, min(len(again), chance.randint(1, 5))))
    return order


def _compare_in_fork(rewrite: Callable[[], Pair]) -> str:
    """Return `EQUAL`, `REFUSED`, an exit code, or what is wrong with the rewritten model."""
    _SAID.write_text("start\n")
    child = os.fork()
    if child == 0:
        _run_alone(rewrite)
    _, status, _ = os.wait4(child, 0)
    said = _SAID.read_text().splitlines()
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return said[-1]
    # A crash while the original runs is none of ours.
    return REFUSED if said[-1] == "original" else f"CRASH {code} after {said[-1]}"


def _run_alone(rewrite: Callable[[], Pair]) -> None:
    code = 1
    try:
        signal.alarm(_PROCESSOR_S)
        resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, resource.RLIM_INFINITY))
        with _SAID.open("a", buffering=1) as said:

            def say(line: str) -> None:
                said.write(f"{' '.join(line.split())}\n")

            say(_compare(rewrite, say))
        code = 0
    finally:
        os._exit(code)


def _compare(rewrite: Callable[[], Pair], say: Callable[[str], object]) -> str:
    try:
        model, rewritten = rewrite()
    except CheckmateError as error:
        return f"exit {error.exit_code}"
    if sum(tensor.nbytes for tensor in model.graph.tensors) > _MAX_NBYTES:
        return TOO_LARGE
    _REWRITTEN.write_bytes(render_seeded(rewritten))
    feeds = make_inputs(specify_inputs(model), 0)
    has_halves = any(known.elem_type in _HALVES for known in model.types.values())
    for manner in _MANNERS:
        say("original")
        if not _run_original(model, manner, feeds):
            return REFUSED
        say(f"rewritten, {manner}")
        try:
            _run(_REWRITTEN, manner, feeds)
        except Exception as error:
            return f"FAILS {manner}: {error}"[:400]
        different = () if has_halves else _find_differences(manner)
        if different:
            return f"DIFFERS {manner}: {different[0].name!r} by {different[0].max_error}"
    return HALVED if has_halves else EQUAL


def _find_differences(manner: Manner) -> tuple[Difference, ...]:
    """Return what differs; under default options, by more than rounding explains."""
    first, second = (SavedArrays(path.with_suffix(".npz")) for path in (_ORIGINAL, _REWRITTEN))
    found = compare_outputs(first, second)
    if manner == "scheduled":
        return found
    values = (np.abs(first.read(name).astype(float)) for name in first.names)
    largest = max(float(v.max(initial=0.0, where=np.isfinite(v))) for v in values)
    return tuple(f for f in found if not f.is_rounding and not 0 < f.max_error <= _NOISE * largest)


def _run_original(model: Model, manner: Manner, feeds: Mapping[str, np.ndarray]) -> bool:
    """Run the file of ``model``, or else the model that was made of it; return whether it ran."""
    contents = [render_seeded(model.proto)]
    # Within functions nothing gets a seed.
    contents[:0] = [] if is_random(model) else [model.path.read_bytes()]
    for content in contents:
        _ORIGINAL.write_bytes(content)
        try:
            _run(_ORIGINAL, manner, feeds)
        except Exception:  # whatever onnxruntime has against a model
            continue
        return True
    return False


def _run(path: Path, manner: Manner, feeds: Mapping[str, np.ndarray]) -> None:
    settings = Settings(threads=1, manner=manner)
    binding = Binding(make_session(str(path), settings, Instruments()), settings, feeds)
    binding.run()
    save_arrays(path.with_suffix(".npz"), binding.take_outputs())
