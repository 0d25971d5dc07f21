"""The same rewritten files under several versions of onnxruntime, with its own default options.

    python bench/versions.py [--versions 1.19.2,newest] [--share 80] [NAME ...]

Each version is installed, with numpy alone beside it, into an environment that is thrown away. The
files are made once, here: each tiny graph solved for a share of its peak without recompute, costs
and workspace measured, and rewritten with `--fences all`. One line for each version and graph:

- budget and plan, and the peaks of three runs in MiB: of the original, of the rewritten graph with
  plain default options (judged: the first run; from the second on, memory patterns add a block),
  and with `enable_mem_pattern = False` (judged: all three). Inputs count.
- arena: whether three runs complete in an arena of the budget and a quarter more, for what the
  allocator adds, without memory patterns: the rewritten graph has to, the original must not.
- order: "kept" when the nodes that optimizers left ran in the order of the file; copies: how many
  of the recomputes ran under their name (optimizers rename what they fuse).
- outputs: "equal", bit for bit, to the original's under the same options. "fused", of either: it is
  so with optimizers off; with them, fusions moved nodes, or rounded otherwise by at most 1e-6.

A peak is what the kernel says of the process (VmHWM), with the arena off, so that memory comes from
the C library, which is told to take each block of 16 KiB or more from the kernel and to give it
back when it is freed. It counts pages, up to two for each tensor more than its bytes, and what else
the process touches, and it is added up in batches of pages; the least of two sessions counts. Pages
are locked, where the process may: measured so, peaks were from 0.2 MiB below to 1.1 MiB above the
plan. A row passes up to 1.5 MiB above the budget. The method needs nothing that old versions lack,
but Linux with glibc. Exits 1 when a row fails, 2 when a version cannot be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from checkmate.engine.solve import run_baseline, solve
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.model import Model
from checkmate.onnxio.order import HOISTED_OPS
from checkmate.onnxio.read import read_model
from checkmate.onnxio.rewrite import rewrite_model
from checkmate.onnxio.write import render_model
from checkmate.problem import Problem
from checkmate.profiler.profile import ProfileOptions, profile_model
from checkmate.profiler.specify import specify_inputs
from checkmate.runtime.device import probe_device
from checkmate.runtime.inputs import make_inputs
from checkmate.schedule import Schedule
from checkmate.search.finding import Limits
from versions_run import Job

BENCH = Path(__file__).parent
BATCHES = {"vgg16": 256, "mobilenetv1": 256, "resnet50": 128, "unet": 128, "gpt2": 256}
VERSIONS = "1.19.2,1.20.1,1.22.1,1.24.4,1.31.1,newest"
RESOLUTION_NBYTES = 3 * 2**19
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TRIM_THRESHOLD_": "16384"}
ARENA_PERCENT = 125
MAX_ERROR = 1e-6
HEADER = (
    f"{'version':8} {'graph':12} {'budget':>6} {'plan':>6} {'original':>18} {'default':>18}"
    f" {'without pattern':>18} {'arena':>5} {'order':>5} {'copies':>7} {'outputs':>7}"
)


class InstallError(Exception):
    """A version of onnxruntime that cannot be installed here."""


@dataclass(frozen=True, slots=True)
class Case:
    """One graph under a budget, as files."""

    name: str
    original: str
    rewritten: str
    feeds: str
    inputs_nbytes: int
    budget_nbytes: int
    plan_nbytes: int
    nodes: tuple[str, ...]
    """Names, in file order, but for constants, what is hoisted, and what fences are made of."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the runs of one version showed; peaks with inputs, in bytes, a number for each run."""

    version: str
    original_nbytes: tuple[int, ...]
    default_nbytes: tuple[int, ...]
    no_pattern_nbytes: tuple[int, ...]
    fits: bool
    original_fits: bool
    order: str
    """"kept", "fused" or "lost"."""
    n_copies: int
    """Recomputes that ran under their name."""
    outputs: str
    """"equal", "fused" or "differ"."""


def main() -> None:
    """Print the table; end with what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--versions", default=VERSIONS)
    parser.add_argument("--share", type=int, default=80, help="budget in percent")
    parser.add_argument("names", nargs="*", default=list(BATCHES))
    arguments = parser.parse_args()
    complaints: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [make_case(name, arguments.share, folder) for name in arguments.names]
        print(HEADER, flush=True)
        for version in arguments.versions.split(","):
            try:
                python = install(version, folder / version)
            except InstallError as error:
                print(error, file=sys.stderr)
                sys.exit(2)
            for case in cases:
                seen = observe(case, python, folder)
                print(describe(case, seen), flush=True)
                complaints += judge(case, seen)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    sys.exit(1 if complaints else 0)


def make_case(name: str, share: int, folder: Path) -> Case:
    """Return the graph ``name``, solved for ``share`` percent, as files in ``folder``."""
    model = read_model(BENCH.parent / "graphs" / f"{name}-tiny-bN.onnx", {"N": BATCHES[name]})
    # One run each: the schedule has to fit, not to be fast.
    options = ProfileOptions(threads=1, max_runs=1, max_ns=1)
    profile = profile_model(model, probe_device("cpu"), options, lambda _: None)
    problem = Problem(model.graph, profile.costs)
    budget_nbytes = run_baseline(problem).peak.nbytes * share // 100
    plan = solve(problem, budget_nbytes, "greedy", Limits())
    feeds = make_inputs(specify_inputs(model), 0)
    files = {kind: folder / f"{name}-{kind}" for kind in ("feeds.npz", "rewritten.onnx")}
    np.savez(files["feeds.npz"], **{str(i): array for i, array in enumerate(feeds.values())})
    path = files["rewritten.onnx"]
    path.write_bytes(render_model(model, plan.schedule, path, "all"))
    return Case(
        name,
        str(model.path.resolve()),
        str(path),
        str(files["feeds.npz"]),
        sum(array.nbytes for array in feeds.values()),
        budget_nbytes,
        plan.peak.nbytes,
        tuple(list_nodes(model, plan.schedule)),
    )


def list_nodes(model: Model, schedule: Schedule) -> Iterator[str]:
    """Yield the names of nodes that are neither constants, nor hoisted, nor of fences."""
    for node in rewrite_model(model, schedule, "all").graph.node:
        is_bound = node.op_type not in {*HOISTED_OPS, "Constant"}
        if is_bound and not node.name.startswith(PREFIX):
            yield node.name


def install(version: str, folder: Path) -> Path:
    """Return the Python of a new environment in ``folder`` with ``version`` of onnxruntime."""
    package = "onnxruntime" if version == "newest" else f"onnxruntime=={version}"
    python = folder / "bin" / "python"
    own_pip = [sys.executable, "-m", "pip", "--python", str(python)]
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*own_pip, "install", "--quiet", "--disable-pip-version-check", package, "numpy"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            running = ".".join(map(str, sys.version_info[:2]))
            raise InstallError(f"cannot install {package} for Python {running}: {last}")
    return python


def observe(case: Case, python: Path, folder: Path) -> Seen:
    """Return what the runs of ``case`` show under the onnxruntime of ``python``."""
    before_job = Job(case.original, case.feeds, str(folder / "before.npz"))
    after_job = replace(before_job, model=case.rewritten, outputs=str(folder / "after.npz"))
    before, after = run_job(python, before_job), run_job(python, after_job)
    outputs = "equal" if (worst := find_worst(before_job, after_job)) == 0 else "differ"
    order = "kept" if is_in_order(case, after["executed"]) else "lost"
    if order == "lost" or 0 < worst <= MAX_ERROR:
        plain = [replace(job, level="DISABLE_ALL") for job in (before_job, after_job)]
        seen = [run_job(python, job) for job in plain]
        if order == "lost" and is_in_order(case, seen[1]["executed"]):
            order = "fused"
        if outputs == "differ" and find_worst(*plain) == 0:
            outputs = "fused"
    no_pattern = run_job(python, replace(after_job, has_pattern=False))
    limit_nbytes = case.budget_nbytes * ARENA_PERCENT // 100 - case.inputs_nbytes
    fits = [
        bool(run_job(python, replace(job, has_pattern=False, limit_nbytes=limit_nbytes))["fits"])
        for job in (after_job, before_job)
    ]
    return Seen(
        str(after["version"]),
        *(add_inputs(case, seen) for seen in (before, after, no_pattern)),
        *fits,
        order,
        len(find_copies(case) & set(after["executed"])),
        outputs,
    )


def run_job(python: Path, job: Job) -> dict[str, Any]:
    """Return what a process with ``python`` printed about ``job``."""
    path = Path(job.outputs).with_suffix(".json")
    path.write_text(json.dumps(asdict(job)))
    command = [str(python), str(BENCH / "versions_run.py"), str(path)]
    environment = os.environ | MALLOC
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def add_inputs(case: Case, seen: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the peak of each run with the inputs, which were there before."""
    return tuple(case.inputs_nbytes + int(nbytes) for nbytes in seen["run_nbytes"])


def find_worst(first: Job, second: Job) -> float:
    """Return the largest difference of any output; 0: equal, bit for bit."""
    worst = 0.0
    with np.load(first.outputs) as before, np.load(second.outputs) as after:
        for name in before.files:
            one, other = before[name], after[name]
            if one.tobytes() != other.tobytes():
                differences = np.abs(one.astype(float) - other.astype(float))
                worst = max(worst, float(differences.max()), np.finfo(float).tiny)
    return worst


def judge(case: Case, seen: Seen) -> Iterator[str]:
    """Yield a sentence for each thing that ``seen`` should not show."""
    most_nbytes = case.budget_nbytes + RESOLUTION_NBYTES
    where = f"onnxruntime {seen.version}, {case.name}"
    judged = {"default options": seen.default_nbytes[:1], "no pattern": seen.no_pattern_nbytes}
    for options, peaks in judged.items():
        if max(peaks) > most_nbytes:
            yield f"{where}: {options}: {max(peaks):,} B, and the budget is {case.budget_nbytes:,}"
    if not seen.fits:
        yield f"{where}: does not run in an arena of {ARENA_PERCENT} % of the budget"
    if seen.original_fits:
        yield f"{where}: the original runs in that arena too, so it proves nothing"
    if seen.order == "lost":
        yield f"{where}: the nodes did not run in the order of the file"
    if seen.outputs == "differ":
        yield f"{where}: outputs differ from the original's"


def is_in_order(case: Case, executed: Sequence[str]) -> bool:
    """Return whether the nodes that still have their names ran in the order of the file."""
    left, known = set(executed), set(case.nodes)
    planned = [name for name in case.nodes if name in left]
    return planned == [name for name in executed if name in known]


def find_copies(case: Case) -> set[str]:
    """Return the names of the recomputes."""
    return {name for name in case.nodes if "__recompute" in name}


def describe(case: Case, seen: Seen) -> str:
    """Return one line of the table."""
    columns = (seen.original_nbytes, seen.default_nbytes, seen.no_pattern_nbytes)
    peaks = " ".join(" ".join(f"{n / 2**20:5.1f}" for n in column).rjust(18) for column in columns)
    copies = f"{seen.n_copies}/{len(find_copies(case))}"
    return (
        f"{seen.version:8} {case.name:12} {case.budget_nbytes / 2**20:6.1f}"
        f" {case.plan_nbytes / 2**20:6.1f} {peaks}"
        f" {'yes' if seen.fits and not seen.original_fits else 'no':>5}"
        f" {seen.order:>5} {copies:>7} {seen.outputs:>7}"
    )


if __name__ == "__main__":
    main()
