"""How far optimization moves the numbers of the model that was given."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checkmate.cli.report import echo_note
from checkmate.errors import MismatchError
from checkmate.onnxio.model import Model
from checkmate.onnxio.write import place_planned
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.arrays import NOISE, SavedArrays
from checkmate.runtime.execute import RunOptions, RunResult, run_model
from checkmate.runtime.protocol import Provider, Settings

TOLERANCE = 1e-3
"""Of the largest element of an output; fused kernels add up in another order."""
HALF_TOLERANCE = 3e-2
"""The same where the model computes in types of 16 bits: casts that cancel leave out a rounding."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The output that moves most."""

    output: str
    error: float
    """Largest difference, as a share of the largest element, or of what counts as noise."""


def check_drift(model: Model, provider: Provider) -> Drift | None:
    """Return how far the optimized ``model`` is from the file that it was made from.

    Both run once on equal inputs, on CUDA with products in full single precision. None: the file
    itself does not repeat its numbers, as with unseeded random ops, or onnxruntime refuses it for
    the names of its nodes. Raises `MismatchError` when an output is further away than rounding
    explains.
    """
    if model.namesake is not None:
        echo_note(
            f"nodes of the model share the name {model.namesake!r}, so that it does not run:"
            " optimized and given graph were not compared"
        )
        return None
    # Some kernels race: with several threads, not even one graph repeats its numbers. And numbers
    # of 10 bits, of which CUDA makes products, are further away than what is tolerated.
    settings = Settings(provider, threads=1, tf32=False)
    with tempfile.TemporaryDirectory(prefix="checkmate-") as name, place_planned(model) as planned:
        folder = Path(name)
        given = _run(model, model.path, RunOptions(settings, n_runs=2, outputs=folder / "a.npz"))
        made = _run(model, planned, RunOptions(settings, outputs=folder / "b.npz"))
        assert given.outputs is not None
        assert made.outputs is not None
        if not given.is_repeatable:
            why = "draws at random" if provider == "cpu" else "does not repeat its own numbers"
            echo_note(f"the model {why}: optimized and given graph were not compared")
            return None
        is_half = any(known.is_half for known in model.types.values())
        return judge_drift(given.outputs, made.outputs, HALF_TOLERANCE if is_half else TOLERANCE)


def judge_drift(given: SavedArrays, made: SavedArrays, tolerance: float = TOLERANCE) -> Drift:
    """Return the output that moved most; raise `MismatchError` when by more than ``tolerance``."""
    noise = NOISE * max(_find_largest(given.read(name)) for name in given.names)
    drifts = [_measure(name, given.read(name), made.read(name), noise) for name in given.names]
    worst = max(drifts, key=lambda drift: drift.error)
    if worst.error > tolerance:
        raise MismatchError(
            f"output {worst.output!r} of the optimized graph is {worst.error:.2g} of its largest"
            f" element away from the given graph's, more than {tolerance:g}",
            hint="solve with --optimize none",
        )
    return worst


def _run(model: Model, path: Path, options: RunOptions) -> RunResult:
    return run_model(path, specify_inputs(model), options)


def _find_largest(array: np.ndarray) -> float:
    """Return the magnitude of the largest finite element; integers do not count."""
    if array.dtype.kind in "iub":
        return 0.0
    values = np.abs(np.ravel(array).astype(float))
    return float(values[np.isfinite(values)].max(initial=0.0))


def _measure(name: str, given: np.ndarray, made: np.ndarray, noise: float) -> Drift:
    """Return how far one output moved; values that are not finite must be the same."""
    if given.shape != made.shape or given.dtype != made.dtype:
        return Drift(name, float("inf"))
    first, second = (np.ravel(array).astype(float) for array in (given, made))
    finite = np.isfinite(first) & np.isfinite(second)
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return Drift(name, float("inf"))
    largest = max(float(np.abs(first[finite]).max(initial=0.0)), noise)
    error = float(np.abs(first[finite] - second[finite]).max(initial=0.0))
    return Drift(name, error / largest if largest else error)
