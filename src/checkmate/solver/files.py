"""The files by which a solve and its worker speak: arrays by name, no pickle."""

from __future__ import annotations

import math
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from checkmate.errors import SolverError
from checkmate.milp.model import FloatArray, Program
from checkmate.solver.result import MilpResult, Settings, Status

_JOB, _RESULT, _INCUMBENT, _FAILURE = "job.npz", "result.npz", "incumbent.npz", "failure.txt"
_NOTHING = np.zeros(0)

Arrays = dict[str, NDArray[np.generic]]


def write_job(folder: Path, program: Program, settings: Settings, start: FloatArray | None) -> None:
    """Write what the worker is to solve."""
    arrays = {field.name: np.asarray(getattr(program, field.name)) for field in fields(program)}
    limits = [
        math.inf if value is None else float(value)
        for value in (settings.gap, settings.time_s, settings.nodes, settings.target)
    ]
    _write(folder / _JOB, {**arrays, "settings": np.array(limits), "start": _pack(start)})


def read_job(folder: Path) -> tuple[Program, Settings, FloatArray | None]:
    """Return what `write_job` wrote."""
    arrays = _read(folder / _JOB)
    gap, time_s, nodes, target = (float(value) for value in arrays["settings"])
    settings = Settings(
        gap,
        time_s if math.isfinite(time_s) else None,
        int(nodes) if math.isfinite(nodes) else None,
        target if math.isfinite(target) else None,
    )
    program = Program(
        cost=_floats(arrays["cost"]),
        offset=float(arrays["offset"]),
        lower=_floats(arrays["lower"]),
        upper=_floats(arrays["upper"]),
        is_integer=np.asarray(arrays["is_integer"], dtype=np.bool_),
        row_lower=_floats(arrays["row_lower"]),
        row_upper=_floats(arrays["row_upper"]),
        starts=np.asarray(arrays["starts"], dtype=np.int32),
        indices=np.asarray(arrays["indices"], dtype=np.int32),
        values=_floats(arrays["values"]),
    )
    return program, settings, _unpack(arrays["start"])


def write_result(folder: Path, result: MilpResult) -> None:
    """Write the answer."""
    _write_answer(folder / _RESULT, result)


def write_incumbent(folder: Path, incumbent: MilpResult) -> None:
    """Write the best solution so far, in place of the one before."""
    _write_answer(folder / _INCUMBENT, incumbent)


def write_failure(folder: Path, message: str) -> None:
    """Write why there will be no answer."""
    (folder / _FAILURE).write_text(message, encoding="utf-8")


def read_result(folder: Path) -> MilpResult | None:
    """Return the answer, if there is one; raises `SolverError` with the failure, if that is."""
    if (folder / _FAILURE).exists():
        raise SolverError((folder / _FAILURE).read_text(encoding="utf-8"))
    return _read_answer(folder / _RESULT)


def read_incumbent(folder: Path) -> MilpResult | None:
    """Return the best solution so far, if there is one."""
    return _read_answer(folder / _INCUMBENT)


def _write_answer(path: Path, result: MilpResult) -> None:
    numbers = np.array([result.objective, result.bound, result.nodes], dtype=np.float64)
    words = np.array([result.status, result.version])
    _write(path, {"values": _pack(result.values), "numbers": numbers, "words": words})


def _read_answer(path: Path) -> MilpResult | None:
    if not path.exists():
        return None
    arrays = _read(path)
    objective, bound, nodes = (float(value) for value in arrays["numbers"])
    status, version = (str(word) for word in arrays["words"])
    known: tuple[Status, ...] = get_args(Status)
    return MilpResult(
        known[known.index(status)], _unpack(arrays["values"]), objective, bound, int(nodes), version
    )


def _write(path: Path, arrays: Arrays) -> None:
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    unfinished.replace(path)


def _read(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise SolverError(f"the solver's file {path.name} cannot be read: {error}") from error


def _pack(values: FloatArray | None) -> FloatArray:
    return _NOTHING if values is None else values


def _unpack(values: NDArray[np.generic]) -> FloatArray | None:
    return _floats(values) if len(values) else None


def _floats(values: NDArray[np.generic]) -> FloatArray:
    return np.asarray(values, dtype=np.float64)
