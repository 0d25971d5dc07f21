"""The files that a solve writes: chosen before any work is done, written together at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from checkmate.cli.fencing import read_fences
from checkmate.cli.outputs import check_outputs
from checkmate.cli.report import echo_note
from checkmate.cli.source import is_document
from checkmate.errors import InputError, UsageError
from checkmate.files import write_files
from checkmate.formats.schedule_json import ScheduleRecord, render_schedule
from checkmate.onnxio.load import load_proto
from checkmate.onnxio.model import Model
from checkmate.onnxio.weights import WeightFile, find_missing, measure_weights, place_weights
from checkmate.onnxio.write import render_model, render_planned
from checkmate.schedule import Schedule

STANDARD_OUTPUT = Path("-")
"""In place of a schedule file."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line names."""

    model: Path
    output: Path | None
    onnx_path: Path | None
    copies_weights: bool
    optimized: Path | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """Where a schedule and a rewritten model go."""

    paths: Mapping[str, Path]
    """By kind: ``schedule``, ``model`` and ``optimized``."""
    weights: tuple[WeightFile, ...]
    """Where the rewritten model finds its weights."""

    def list_copies(self) -> dict[Path, Path]:
        """Return the files of weights to copy: from where, by where to."""
        return {file.target: file.source for file in self.weights if file.is_to_be_copied}

    def write(
        self, model: Model | None, schedule: Schedule, record: ScheduleRecord
    ) -> Mapping[str, Path]:
        """Write all files, or none; returns where, by kind."""
        contents: dict[Path, bytes] = {}
        if "schedule" in self.paths:
            contents[self.paths["schedule"]] = render_schedule(record).encode()
        if "model" in self.paths and model is not None:
            path, fences = self.paths["model"], read_fences(record)
            contents[path] = render_model(model, schedule, path, fences, self.weights)
        if "optimized" in self.paths and model is not None:
            path = self.paths["optimized"]
            contents[path] = render_planned(model, path)
        write_files(contents, self.list_copies())
        return self.paths


def choose_files(wanted: Wanted, costs: str) -> Files:
    """Return the files to write; refuse those that cannot be before any work is done."""
    model, output, onnx_path = wanted.model, wanted.output, wanted.onnx_path
    if STANDARD_OUTPUT in (onnx_path, wanted.optimized):
        raise UsageError("a model is not written to standard output", hint="give --onnx a file")
    is_problem = is_document(model)
    ends = {} if is_problem else measure_weights(load_proto(model))
    data = _find_data(wanted, ends)
    if output is None and onnx_path is None:
        output = Path(f"{model.stem}.schedule.json")
        # External data is found from the folder of the model, and not from elsewhere.
        folder = model.parent if data and not wanted.copies_weights else Path()
        onnx_path = None if is_problem else folder / f"{model.stem}.scheduled.onnx"
    if is_problem and (onnx_path is not None or wanted.optimized is not None):
        raise UsageError("a problem file has no model to rewrite: no --onnx or --optimized-model")
    weights: tuple[WeightFile, ...] = ()
    if onnx_path is not None:
        weights = place_weights(ends, model, onnx_path, copies=wanted.copies_weights)
    if wanted.optimized is not None:
        place_weights(ends, model, wanted.optimized, copies=False)
    named = {
        "schedule": None if output == STANDARD_OUTPUT else output,
        "model": onnx_path,
        "optimized": wanted.optimized,
    }
    files = Files({kind: path for kind, path in named.items() if path is not None}, weights)
    given = [] if costs in ("auto", "flops") else [Path(costs)]
    check_outputs(files.paths, [model, *data, *given, *files.list_copies()])
    return files


def _find_data(wanted: Wanted, ends: Mapping[str, int]) -> tuple[Path, ...]:
    """Return the files with weights; a model without them can be planned, but not run."""
    folder = wanted.model.resolve().parent
    missing = find_missing(ends, folder)
    if missing and wanted.copies_weights:
        raise InputError(f"{str(missing[0])!r}, with weights of the model, is not there to copy")
    if missing:
        echo_note(f"note: {str(missing[0])!r}, with weights of the model, is not there")
    return tuple(folder / location for location in ends)
