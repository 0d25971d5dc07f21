"""Files in which models keep weights: where a rewritten model finds them."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from checkmate.errors import InputError, UsageError
from checkmate.onnxio.load import find_external


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of weights, for the model that has it and for a rewritten one."""

    location: str
    """As the model names it: relative to its folder."""
    source: Path
    new_location: str
    """As the rewritten model names it."""
    target: Path
    """Where the rewritten model finds it: the source itself, or a copy."""

    @property
    def is_copied(self) -> bool:
        """The rewritten model has a copy of its own."""
        return self.source != self.target

    @property
    def is_to_be_copied(self) -> bool:
        """The copy is not there yet.

        Raises `UsageError` when something else is in its place.
        """
        if not self.is_copied or not self.target.exists():
            return self.is_copied
        if filecmp.cmp(self.source, self.target, shallow=False):
            return False
        raise UsageError(
            f"{str(self.target)!r} is there, and is not the copy of {str(self.source)!r}",
            hint="write the model to another folder, or remove that file",
        )


def measure_weights(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the files in which ``proto`` keeps weights, and how long they are at least, in bytes.

    They are named as the model names them: relative to its folder.
    """
    ends: dict[str, int] = {}
    for tensor in find_external(proto):
        location = _get_location(tensor)
        ends[location] = max(ends.get(location, 0), _find_end(tensor))
    return ends


def find_missing(ends: Mapping[str, int], folder: Path) -> tuple[Path, ...]:
    """Return those files of `measure_weights` that are not in ``folder``.

    Raises `InputError` when one is there and too short for the tensors in it.
    """
    missing: list[Path] = []
    for location, end in ends.items():
        path = folder / location
        if not path.is_file():
            missing.append(path)
        elif path.stat().st_size < end:
            raise InputError(
                f"weights of the model go on to byte {end} of {str(path)!r}, which has"
                f" {path.stat().st_size}",
                hint="check that the file's download or copy was complete",
            )
    return tuple(missing)


def place_weights(
    locations: Iterable[str], model: Path, rewritten: Path, *, copies: bool
) -> tuple[WeightFile, ...]:
    """Return the files with weights of ``model`` as a model at ``rewritten`` finds them.

    onnxruntime follows relative paths that stay in the model's own folder, and no others: files
    below the folder of ``rewritten`` stay where they are, others are copied there with ``copies``.
    Raises `UsageError` when they would have to be and may not.
    """
    folder, new_folder = model.resolve().parent, rewritten.resolve().parent
    placed = tuple(_place(location, folder, new_folder) for location in locations)
    away = [file for file in placed if file.is_copied]
    if away and not copies:
        raise UsageError(
            f"model {model.name!r} keeps weights in {str(away[0].source)!r}, and a model in"
            f" {str(new_folder)!r} may not refer to it: onnxruntime opens nothing outside the"
            " folder of a model",
            hint=f"write the rewritten model to {str(folder)!r}, or add --copy-weights",
        )
    return placed


def relocate_weights(proto: onnx.ModelProto, files: Sequence[WeightFile]) -> None:
    """Let the tensors of ``proto`` name their files as its new folder does."""
    new_locations = {file.location: file.new_location for file in files}
    for tensor in find_external(proto):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = new_locations[entry.value]


def _find_end(tensor: onnx.TensorProto) -> int:
    """Return where the data of ``tensor`` ends in its file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return sum(int(entries.get(key, "0")) for key in ("offset", "length"))


def _get_location(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _place(location: str, folder: Path, new_folder: Path) -> WeightFile:
    source = folder / location
    if source.is_relative_to(new_folder):
        new_location = source.relative_to(new_folder).as_posix()
        return WeightFile(location, source, new_location, source)
    return WeightFile(location, source, location, new_folder / location)
