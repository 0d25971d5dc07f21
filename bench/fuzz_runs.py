"""A rewritten model against the original, run by onnxruntime in a fork. Used by `bench/fuzz.py`."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

import shared  # noqa: F401
from checkmate.cli.fencing import read_fences
from checkmate.costs import unit_costs
from checkmate.errors import CheckmateError
from checkmate.formats.schedule_json import read_schedule, resolve_instructions
from checkmate.liveness import insert_frees
from checkmate.onnxio.doubts import find_bodied, find_unmasked
from checkmate.onnxio.expand import expand
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
from checkmate.runtime.protocol import Manner, RunTask, Settings, read_ints
from checkmate.runtime.running import Binding
from checkmate.runtime.running import run as run_task
from checkmate.runtime.session import Instruments, make_session
from checkmate.simulate import Peak, simulate
from random_orders import draw_order

EQUAL = "equal"
HALVED = "runs, with halves"
REFUSED = "original refused"
TOO_LARGE = "too large to run"
MEASURED = "equal, peak measured"
IN_ARENA = "equal, peak measured, within its arena"
GOOD = (EQUAL, HALVED, IN_ARENA, MEASURED, REFUSED, TOO_LARGE)
_WITHOUT_WORKSPACE = frozenset(
    {"Abs", "Add", "Cast", "Concat", "ConstantOfShape", "Cos", "Div", "Dropout", "Elu", "Erf"}
    | {"Exp", "Flatten", "Gather", "Greater", "Identity", "Less", "MatMul", "Mul", "Neg", "Relu"}
    | {"RandomNormal", "RandomUniform"}
    | {"Reshape", "Shape", "Sigmoid", "Sin", "Size", "Slice", "Softplus", "Softsign", "Split"}
    | {"ReduceSum", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Unsqueeze"}
)
"""Of graphs of these alone, what a run holds is what its tensors take."""
_MAX_NBYTES = 2**26
_NOISE = 1e-4
"""Of the largest element of all outputs; gradients that are zero come out as noise."""
_HALVES = (10, 16)
"""In float16 and bfloat16 the CPU provider computes most ops in float32, and rounds where its own
casts end up, which another node moves."""
_ORIGINAL = Path("original.onnx")
_REWRITTEN = Path("rewritten.onnx")
_PROCESSOR_S = 20
_SAID = Path("said.txt")
"""What the fork has come to, line by line."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A model and what it is rewritten to."""

    model: Model
    proto: onnx.ModelProto
    allowed_nbytes: int
    """The most that a run may hold beside inputs and weights, without workspace."""
    arena_nbytes: int | None = None
    """The arena in which runs have to complete; None: it was not planned for one."""


def compare_at_random(path: Path, dims: Mapping[str, int], chance: random.Random) -> str:
    """Rewrite ``path`` with recomputes and fences at random; return how the runs compare."""

    def rewrite() -> Rewritten:
        model = read_model(path, dims)
        schedule = insert_frees(model.graph, draw_order(chance, model))
        problem = Problem(model.graph, unit_costs(model.graph))
        # Raises where the schedule reads what is not there.
        simulate(problem, schedule)
        fences = "none" if find_obstacle(model, "cpu") else chance.choice(FENCES)
        peak = simulate(*expand(problem, model, schedule, fences)).peak
        allowed_nbytes = _count_run_nbytes(model, peak)
        return Rewritten(model, rewrite_model(model, schedule, fences), allowed_nbytes)

    return _compare_in_fork(rewrite)


def compare_written(path: Path, schedule: Path, written: Path, dims: Mapping[str, int]) -> str:
    """Return how runs of ``path`` and of what was solved from it compare."""

    def read() -> Rewritten:
        model = read_model(path, dims)
        record = read_schedule(schedule)
        steps = resolve_instructions(record, model.graph)
        problem = Problem(model.graph, unit_costs(model.graph))
        # Where there is no room for what the file adds, solve says so.
        peak = simulate(*expand(problem, model, steps, read_fences(record))).peak
        spare_nbytes = record.budget_nbytes - model.graph.resident_nbytes
        spare_nbytes += _count_returned_nbytes(model)
        allowed_nbytes = max(_count_run_nbytes(model, peak), spare_nbytes)
        arena = record.runtime.get("arena_limit_nbytes")
        proto = onnx.load(written, load_external_data=False)
        return Rewritten(model, proto, allowed_nbytes, None if arena is None else int(arena))

    return _compare_in_fork(read)


def _count_run_nbytes(model: Model, peak: Peak) -> int:
    """Return what a run holds at ``peak`` beside inputs and weights."""
    return peak.live_nbytes + peak.workspace_nbytes + _count_returned_nbytes(model)


def _count_returned_nbytes(model: Model) -> int:
    """Return the bytes of the weights that runs copy to hand them to the caller."""
    resident = (tensor for tensor in model.graph.tensors if tensor.producer is None)
    return sum(tensor.nbytes for tensor in resident if tensor.name not in model.types)


def _compare_in_fork(rewrite: Callable[[], Rewritten]) -> str:
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


def _run_alone(rewrite: Callable[[], Rewritten]) -> None:
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


def _compare(rewrite: Callable[[], Rewritten], say: Callable[[str], object]) -> str:
    try:
        rewritten = rewrite()
    except CheckmateError as error:
        return f"exit {error.exit_code}"
    model = rewritten.model
    if sum(tensor.nbytes for tensor in model.graph.tensors) > _MAX_NBYTES:
        return TOO_LARGE
    _REWRITTEN.write_bytes(render_seeded(rewritten.proto, model.path))
    feeds = make_inputs(specify_inputs(model), 0)
    has_halves = any(known.elem_type in _HALVES for known in model.types.values())
    for manner in _choose_manners(model):
        say("original")
        if not _run_original(model, manner, feeds):
            return REFUSED
        say(f"rewritten, {manner}")
        wrong = _run_rewritten(manner, feeds)
        if wrong and (wrong.startswith("FAILS") or not has_halves):
            return wrong
    if has_halves:
        return HALVED
    is_measure = find_bodied(model) is None and _WITHOUT_WORKSPACE.issuperset(_list_ops(model))
    return _compare_peak(rewritten) if is_measure else EQUAL


def _choose_manners(model: Model) -> tuple[Manner, ...]:
    """Return the options to run with, without onnxruntime's own where they are no measure.

    It leaves out some Dropouts, in one graph or the other. Its QDQPropagationTransformer ends the
    process when a body captures what a Reshape makes of a dequantized tensor.
    """
    kinds = {node.op_type for node in model.nodes}
    is_broken = find_unmasked(model) or ("DequantizeLinear" in kinds and model.bodies)
    return ("scheduled",) if is_broken else ("scheduled", "default")


def _run_rewritten(manner: Manner, feeds: Mapping[str, np.ndarray]) -> str | None:
    """Return what is wrong with a run of the rewritten model; None: nothing."""
    try:
        _run(_REWRITTEN, manner, feeds)
    except Exception as error:
        return f"FAILS {manner}: {error}"[:400]
    found = _find_differences(manner)
    return f"DIFFERS {manner}: {found[0].name!r} by {found[0].max_error}" if found else None


def _list_ops(model: Model) -> Iterator[str]:
    return (f"{node.domain}{node.op_type}" for node in model.nodes)


def _compare_peak(rewritten: Rewritten) -> str:
    """Return whether a run takes what was planned, and not a byte more."""
    specs = specify_inputs(rewritten.model)
    task = RunTask(str(_REWRITTEN), Settings(threads=1), "", specs, 0, "", 1, 0, 0, "allocator")
    reply = run_task(task, Path.cwd())
    (taken_nbytes,) = read_ints(reply, "run_nbytes")
    if taken_nbytes > rewritten.allowed_nbytes:
        return f"ABOVE: {taken_nbytes} of {rewritten.allowed_nbytes} B"
    if rewritten.arena_nbytes is None:
        return MEASURED
    limited = Settings(threads=1, arena_limit_nbytes=rewritten.arena_nbytes)
    try:
        run_task(
            replace(task, settings=limited, n_runs=0, n_timed_runs=2, meter="none"), Path.cwd()
        )
    except Exception as error:
        return f"TOO MUCH for an arena of {rewritten.arena_nbytes} B: {error}"[:400]
    return IN_ARENA


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
    contents = [render_seeded(model.proto, model.path)]
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
