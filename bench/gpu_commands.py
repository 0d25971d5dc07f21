"""The steps of `bench/gpu_check.py` that are commands, and what is asked of their documents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkmate.runtime.device import Device, count_whole_budget_nbytes
from checkmate.runtime.protocol import Provider
from gpu_report import Check, Figures, Findings, judge, judge_most, judge_ratio

PEAK_SHARE = 0.02
"""How far a predicted peak may be from the measured one."""
TIME_SHARE = 0.1
"""How far a predicted time may be from the measured one; not judged on the CPU, where batches are
small and whatever else the machine does takes its part."""
_N_LINES = 60
_N_ERRORS = 3
_GONE_S = 2.0


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    exit_code: int
    document: Figures
    lines: tuple[str, ...]
    """What it wrote for people."""

    def conclude(self, checks: Iterator[Check]) -> Findings:
        """Return what the command found; ``checks`` need the document of a success."""
        figures: Figures = {"exit_code": self.exit_code, **self.document}
        errors = self.lines[-_N_ERRORS:] if self.exit_code else ()
        made = tuple(checks) if self.document else ()
        return Findings(figures, made, self.lines[-_N_LINES:], errors)


def run_command(arguments: Sequence[str], cache: Path) -> Done:
    """Run ``checkmate`` to its end; where the time does not last, its child processes end too.

    Costs are remembered in ``cache`` alone: those of another day are not what is checked.
    """
    command = [sys.executable, "-m", "checkmate", *arguments, "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate()
    except BaseException:
        _end_group(process)
        raise
    lines = tuple(line for line in errors.splitlines() if line.strip())
    return Done(process.returncode, json.loads(output) if output.strip() else {}, lines)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End ``process`` and its children, and wait until they have given back what they hold.

    What nobody collects stays in the group although it is gone, so the wait has an end.
    """
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline_s = time.monotonic() + _GONE_S
    while time.monotonic() < deadline_s:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def judge_profile(document: Mapping[str, object], provider: Provider) -> Iterator[Check]:
    """Yield whether the costs of ops add up to the time of the whole graph."""
    yield judge_ratio(
        "sum of op costs / whole graph",
        document["total_ns"],
        document.get("whole_ns"),
        TIME_SHARE,
        is_judged=provider == "cuda",
    )
    estimated = document["estimated"]
    assert isinstance(estimated, list)
    yield judge("ops not measured", len(estimated), "0", holds=not estimated, is_judged=False)


def judge_solve(document: Mapping[str, object]) -> Iterator[Check]:
    """Yield whether the plan fits its budget."""
    budget_nbytes = document["budget_nbytes"]
    assert isinstance(budget_nbytes, int)
    yield judge_most("planned peak, bytes", document["peak_nbytes"], budget_nbytes)


def judge_device_budget(document: Mapping[str, object], device: Device) -> Iterator[Check]:
    """Yield whether the budget is the memory of ``device`` less the reserve."""
    nbytes, expected_nbytes = document["budget_nbytes"], count_whole_budget_nbytes(device)
    holds = nbytes == expected_nbytes
    yield judge("budget of the device, bytes", nbytes, str(expected_nbytes), holds=holds)


def judge_check(
    document: Mapping[str, object], solved: Mapping[str, object], provider: Provider
) -> Iterator[Check]:
    """Yield how the runs of both graphs compare with what ``solved`` predicts of them."""
    budget_nbytes = solved["budget_nbytes"]
    assert isinstance(budget_nbytes, int)
    yield judge_most("measured peak, bytes", document["measured_peak_nbytes"], budget_nbytes)
    for graph, name in (("rewritten", ""), ("original", "baseline_")):
        peaks = solved[f"{name}peak_nbytes"], document[f"measured_{name}peak_nbytes"]
        yield judge_ratio(f"predicted / measured peak, {graph}", *peaks, PEAK_SHARE)
        times = solved[f"{name}time_ns"], document[f"measured_{name}time_ns"]
        what = f"predicted / measured time, {graph}"
        yield judge_ratio(what, *times, TIME_SHARE, is_judged=provider == "cuda")
    yield _judge_outputs(document)
    is_equal = document["order_equal"] is True
    yield judge("order as scheduled", is_equal, "true", holds=is_equal)
    yield from _judge_limited(document)


def _judge_outputs(document: Mapping[str, object]) -> Check:
    """Return whether the rewritten graph gave the numbers of the original, by recommended options.

    Only outputs that the original does not repeat from run to run may differ, by rounding.
    """
    runs = document["runs"]
    assert isinstance(runs, list)
    found = [row["outputs"] for row in runs if row["options"] == "scheduled"]
    worst = max(found, key=("equal", "rounded", "different").index, default="none")
    allowed = "equal, or rounded where the original varies"
    holds = worst == "equal" or (worst == "rounded" and bool(document.get("outputs_varying")))
    return judge("outputs of the rewritten graph", worst, allowed, holds=holds)


def _judge_limited(document: Mapping[str, object]) -> Iterator[Check]:
    """Yield what became of both graphs in the arena that the budget leaves.

    The command judges: the rewritten one where it was planned for that arena, the original where
    it asks for more than the limit. On CUDA, whose arena grows by regions that never merge, plans
    are not made for the arena by default.
    """
    arena = document["arena"]
    if not isinstance(arena, dict):
        yield judge("arena", "no limit was tried", "", holds=False, is_judged=False)
        return
    for row in arena["graphs"]:
        completes = row["graph"] == "rewritten"
        yield judge(
            f"{row['graph']}, arena of {arena['limit_nbytes']} bytes",
            row["refusal"] or "completes",
            "completes" if completes else "out of memory",
            holds=row["completes"] is completes,
            is_judged=row["verdict"] != "reported",
        )


def name_model(path: str, dims: Mapping[str, int]) -> Sequence[str]:
    """Return the arguments that say which model it is."""
    return [path, *(word for name, size in dims.items() for word in ("--dim", f"{name}={size}"))]
