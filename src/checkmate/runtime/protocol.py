"""What parent and child say to each other: one JSON document per line, each way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

Provider = Literal["cuda", "cpu"]
Meter = Literal["allocator", "resident", "none"]
"""How a peak is measured: every request that onnxruntime makes of a counting allocator; the
resident set of the process, which knows pages only; not at all (no such means here)."""


Level = Literal["basic", "extended"]
"""How far onnxruntime optimizes a graph: what holds for every provider, or fused kernels too."""

Manner = Literal["scheduled", "default", "default-no-pattern"]
"""The options of sessions: those that keep to a file's order and hold no more than it needs;
onnxruntime's own; its own without memory patterns."""


Layout = Literal["region", "requests"]
"""An arena of one region as large as its limit, or of a region for each request that none of the
others has room for (``kSameAsRequested``)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How sessions are made; costs hold for one of these and a run uses the same."""

    provider: Provider = "cpu"
    threads: int = 0
    """Threads inside an op; 0: one per physical core, onnxruntime's own choice."""
    device_id: int = 0
    arena_limit_nbytes: int | None = None
    """The most that the arena may hold beside inputs; None: what the device has."""
    manner: Manner = "scheduled"
    layout: Layout | None = None
    """How an arena with a limit grows; None: one region on the CPU, by request on CUDA."""
    tf32: bool = True
    """On CUDA, products of floats of 32 bits may be made of floats with 10 bits of mantissa, as is
    onnxruntime's default; the CPU makes no such products."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a run needs or makes."""

    name: str
    elem_type: int
    """An ``onnx.TensorProto.DataType``."""
    shape: tuple[int, ...]
    upper: int | None = None
    """Integers are drawn from 0 to this, exclusive; None: from 0 and 1."""
    positive: bool = False
    """Numbers are drawn above zero: an op takes their root or logarithm, or divides by them."""
    on_host: bool = False
    """An output that is made in the memory of the host, whatever the provider."""


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """Say which provider a session really gets."""

    provider: Provider


@dataclass(frozen=True, slots=True)
class RunTask:
    """Run a model; write its outputs, say its order, its memory and its time."""

    model: str
    settings: Settings
    feeds: str
    """An .npz file written by `outputs.save_arrays`; empty: draw the inputs from ``specs``."""
    specs: tuple[TensorSpec, ...]
    seed: int
    outputs: str
    """Where the .npz file of outputs goes; empty: they are not kept."""
    n_runs: int
    n_timed_runs: int
    max_timed_ns: int
    """No further timed run starts after this long; one always does."""
    meter: Meter


@dataclass(frozen=True, slots=True)
class TimeTask:
    """Time a model whose inputs are drawn here and whose outputs are bound beforehand."""

    model: str
    settings: Settings
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    seed: int
    max_runs: int
    max_ns: int
    """No further run starts after this long; one is always timed."""
    workspace_by: Literal["allocator", "statistics"]
    """What an op takes for itself: counted, or as onnxruntime's statistics say, which add up all
    blocks of an op and round each to 256 bytes. The first falls back to the second."""


@dataclass(frozen=True, slots=True)
class RaceTask:
    """Time several models on equal inputs, in turn."""

    models: tuple[str, ...]
    settings: Settings
    specs: tuple[TensorSpec, ...]
    seed: int
    n_rounds: int
    """Runs of each session, after one to warm up."""
    n_sessions: int
    """Of each model, all held together."""


@dataclass(frozen=True, slots=True)
class WatchTask:
    """Time each op of a model in runs of all of it."""

    model: str
    settings: Settings
    specs: tuple[TensorSpec, ...]
    seed: int
    n_sessions: int
    """Held together: first so many without a profile, then so many with one."""
    max_rounds: int
    """Runs of each session, after one to warm up."""
    max_ns: int
    """No further round of either starts after this long."""


@dataclass(frozen=True, slots=True)
class OptimizeTask:
    """Optimize a model and write what comes of it; nothing runs."""

    model: str
    optimized: str
    level: Level
    provider: Provider
    max_folded_nbytes: int
    """Ops whose inputs are constants become constants when these are no larger; 0: none do."""
    keeps_dropouts: bool = False
    """Dropouts stay, those that drop nothing too."""


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Say whether all nodes of a model run on the provider that is asked for."""

    model: str
    settings: Settings


Task = ProbeTask | RunTask | TimeTask | RaceTask | WatchTask | OptimizeTask | PlaceTask
Reply = Mapping[str, object]


def write_task(task: Task) -> str:
    """Return ``task`` as one line of JSON."""
    return json.dumps({"task": type(task).__name__, **asdict(task)})


def read_task(line: str) -> Task:
    """Return the task that `write_task` wrote."""
    document = json.loads(line)
    kind = document.pop("task")
    if kind == "ProbeTask":
        return ProbeTask(**document)
    if kind == "OptimizeTask":
        return OptimizeTask(**document)
    document["settings"] = Settings(**document["settings"])
    if kind == "PlaceTask":
        return PlaceTask(**document)
    for key in ("specs", "inputs", "outputs"):
        if isinstance(document.get(key), list):
            document[key] = tuple(map(_read_spec, document[key]))
    if kind == "WatchTask":
        return WatchTask(**document)
    if kind == "RaceTask":
        return RaceTask(**document | {"models": tuple(document["models"])})
    return RunTask(**document) if kind == "RunTask" else TimeTask(**document)


def _read_spec(document: dict[str, object]) -> TensorSpec:
    spec = TensorSpec(**document)  # type: ignore[arg-type]  # written by write_task alone
    return replace(spec, shape=tuple(spec.shape))


def read_ints(reply: Reply, key: str) -> tuple[int, ...]:
    """Return the integers under ``key``."""
    values = reply[key]
    assert isinstance(values, list), key
    return tuple(int(value) for value in values)


def read_texts(reply: Reply, key: str) -> tuple[str, ...]:
    """Return the strings under ``key``."""
    values = reply[key]
    assert isinstance(values, list), key
    return tuple(str(value) for value in values)
