"""Runs of one model under plain default session options; needs onnxruntime and numpy alone.

    python bench/versions_run.py JOB.json

`bench/versions.py` starts it in the environment of each version, one process for each job, and
reads the JSON document that it prints. `Job` says what a job holds.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

N_RUNS = 3
N_SESSIONS = 2
SUFFIX = "_kernel_time"
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Job:
    """What to run, and how."""

    model: str
    feeds: str
    """An .npz file; its arrays are called by the positions of the inputs."""
    outputs: str
    """Where those of the first run go, called by position."""
    level: str = "ENABLE_ALL"
    """Or "DISABLE_ALL"."""
    has_pattern: bool = True
    limit_nbytes: int | None = None
    """The most that an arena may hold; None: no arena, and the peak of the process is measured."""


def main() -> None:
    """Do the job and print what was seen."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    with np.load(job.feeds) as members:
        arrays = [members[str(position)] for position in range(len(members.files))]
    seen = measure(job, arrays) if job.limit_nbytes is None else try_limit(job, arrays)
    print(json.dumps({"version": ort.__version__, **seen}))


def measure(job: Job, arrays: list[np.ndarray]) -> Mapping[str, object]:
    """Return what each run took at most and the order of the first; save its outputs."""
    # What a first run loads for good, code above all, is not what a run takes; nor is a profile.
    profiled = Runner(open_session(job, is_profiled=True), arrays)
    profiled.run()
    executed = read_order(Path(profiled.session.end_profiling()))
    del profiled
    peaks = [measure_session(job, arrays) for _ in range(N_SESSIONS)]
    # What the process does beside the run only ever adds.
    run_nbytes = [min(of_run) for of_run in zip(*peaks, strict=True)]
    return {"run_nbytes": run_nbytes, "executed": executed}


def measure_session(job: Job, arrays: list[np.ndarray]) -> list[int]:
    """Return what each run of a new session took at most; save the outputs of the first."""
    runner = Runner(open_session(job), arrays)
    run_nbytes: list[int] = []
    for number in range(N_RUNS):
        before_nbytes = reset_peak()
        runner.run()
        run_nbytes.append(read_status("VmHWM:") - before_nbytes)
        if number == 0:
            outputs = enumerate(runner.copy_outputs())
            np.savez(job.outputs, **{str(position): array for position, array in outputs})
        runner.clear_outputs()
    return run_nbytes


def try_limit(job: Job, arrays: list[np.ndarray]) -> Mapping[str, object]:
    """Return whether the runs complete in an arena of the limit, and if not, the reason."""
    memory = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    # One region, so that all that is free in it can merge.
    config = {
        "max_mem": job.limit_nbytes,
        "arena_extend_strategy": 0,
        "initial_chunk_size_bytes": job.limit_nbytes,
        "max_dead_bytes_per_chunk": 256,
    }
    ort.create_and_register_allocator(memory, ort.OrtArenaCfg(config))
    try:
        runner = Runner(open_session(job), arrays)
        for _ in range(N_RUNS):
            runner.run()
            runner.clear_outputs()
    except Exception as error:  # what onnxruntime raises has no class that every version has
        if "Available memory of" not in str(error):
            raise
        return {"fits": False, "reason": str(error).splitlines()[0]}
    return {"fits": True, "reason": ""}


def open_session(job: Job, *, is_profiled: bool = False) -> ort.InferenceSession:
    """Return a session with onnxruntime's own options, but for what ``job`` says.

    One thread: some kernels add in another order, or race, with several, and then not even two
    runs of one model are equal.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if job.level != "ENABLE_ALL":
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{job.level}")
    if not job.has_pattern:
        options.enable_mem_pattern = False
    if job.limit_nbytes is None:
        options.enable_cpu_mem_arena = False
    else:
        options.add_session_config_entry("session.use_env_allocators", "1")
    if is_profiled:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(job.outputs).with_suffix(""))
    return ort.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])


class Runner:
    """A session with its inputs bound where they are; each run makes its outputs."""

    def __init__(self, session: ort.InferenceSession, arrays: list[np.ndarray]) -> None:
        self.session = session
        self._binding = session.io_binding()
        for item, array in zip(session.get_inputs(), arrays, strict=True):
            self._binding.bind_cpu_input(item.name, array)
        self.clear_outputs()

    def run(self) -> None:
        """Run once."""
        self.session.run_with_iobinding(self._binding)

    def copy_outputs(self) -> list[np.ndarray]:
        """Return copies of the outputs of the last run."""
        return [np.array(value.numpy()) for value in self._binding.get_outputs()]

    def clear_outputs(self) -> None:
        """Let go of the outputs of the last run."""
        self._binding.clear_binding_outputs()
        for item in self.session.get_outputs():
            self._binding.bind_output(item.name, "cpu")


def read_order(profile: Path) -> list[str]:
    """Return the names of the nodes of the first run, in executed order."""
    names: list[str] = []
    for event in json.loads(profile.read_text()):
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(SUFFIX):
            names.append(name.removesuffix(SUFFIX))
        if name == "model_run":
            break
    return names


def reset_peak() -> int:
    """Let the peak start from what is resident now; return that.

    What the C library has free but not given back would serve the run unseen. What is resident is
    locked: a kernel that takes idle pages away would count them again when they come back. Where
    a process may not lock as much, nothing is, and a busy machine may spoil the figures.
    """
    library = ctypes.CDLL(None)
    library.munlockall()
    library.malloc_trim(0)
    library.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)
    Path("/proc/self/clear_refs").write_text("5")
    return read_status("VmRSS:")


def read_status(key: str) -> int:
    """Return a quantity of this process in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(f"{STATUS} has no {key}")


if __name__ == "__main__":
    main()
