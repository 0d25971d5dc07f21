"""What the runs prove: a verdict per run, and why where one fails.

Numbers are judged in every run: under our options, which fuse nothing, bit for bit, but for outputs
that the original itself does not repeat from run to run (on CUDA, sums by atomic operations), which
are judged to rounding; under default options, whose fusions round in another order in the two
graphs, all to rounding. Order and peak are judged where the rewritten graph promises them: under
our options always; under default options as its fences hold them. The peak of later runs with
memory patterns is onnxruntime's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from checkmate.onnxio.windows import Fences
from checkmate.runtime.arrays import Difference
from checkmate.runtime.execute import RunResult
from checkmate.runtime.protocol import Manner
from checkmate.trial.proof import Proof
from checkmate.trial.runs import N_RUNS, Pair, Trial
from checkmate.units import format_nbytes_exactly

NAMES: dict[Manner, str] = {
    "scheduled": "recommended",
    "default": "default",
    "default-no-pattern": "default, no pattern",
}
"""Sets of options as people read them."""

Verdict = Literal["pass", "fail", "reported"]
Numbers = Literal["equal", "rounded", "different"]
OrderFound = Literal["as scheduled", "windows kept", "different"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a schedule promises of its runs."""

    budget_nbytes: int
    tolerance: float
    """How far above the budget a peak may be, as a share of it."""
    fences: Fences

    @property
    def allowed_nbytes(self) -> int:
        """The most that a judged run may take."""
        return int(self.budget_nbytes * (1 + self.tolerance))


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the rewritten graph."""

    manner: Manner
    run: int
    """From 1."""
    peak_nbytes: int | None
    """Everything: inputs, initializers, what is made. None: nothing measures it here."""
    allowed_nbytes: int | None
    """None: the peak is not judged."""
    numbers: Numbers
    order: OrderFound | None
    """None: the order was not recorded in this run."""
    failures: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One graph in the limited arena."""

    graph: Literal["rewritten", "original"]
    refusal: str | None
    """None: it completed all runs."""
    failures: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """All verdicts."""

    rows: tuple[Row, ...]
    proof: Proof | None
    proof_rows: tuple[ProofRow, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """One line for each thing that is not as it must be."""
        found = (*(row.failures for row in self.rows), *(row.failures for row in self.proof_rows))
        return tuple(line for lines in found for line in lines)


def judge(trial: Trial, terms: Terms) -> Judgement:
    """Return the verdict on every run of ``trial``."""
    rows = (row for pair in trial.pairs for row in _judge_pair(pair, terms))
    return Judgement(tuple(rows), trial.proof, tuple(_judge_proof(trial.proof)))


def find_pattern_block(trial: Trial) -> tuple[int, int] | None:
    """Return the peaks of the first run and of the largest later one under default options.

    None: no later run takes more.
    """
    found = (_list_peaks(p.rewritten) for p in trial.pairs if p.manner == "default")
    peaks = [peak for peak in next(found, []) if peak is not None]
    if len(peaks) < 2 or max(peaks[1:]) <= peaks[0]:
        return None
    return peaks[0], max(peaks[1:])


def count_varying(trial: Trial) -> int:
    """Return how many outputs differ, under our options, that the original does not repeat."""
    pairs = (pair for pair in trial.pairs if pair.manner == "scheduled")
    counts = (sum(found.name in pair.varying for found in pair.differences) for pair in pairs)
    return max(counts, default=0)


def _list_peaks(result: RunResult) -> list[int | None]:
    given_nbytes = result.inputs_nbytes + result.initializers_nbytes
    if not result.run_nbytes:
        return [None] * N_RUNS
    return [given_nbytes + nbytes for nbytes in result.run_nbytes]


def _judge_pair(pair: Pair, terms: Terms) -> Iterator[Row]:
    for number, peak_nbytes in enumerate(_list_peaks(pair.rewritten), start=1):
        is_judged = _promises_peak(pair.manner, number, terms.fences)
        # The resident set is in whole pages of whatever is loaded: it proves nothing.
        is_judged = is_judged and pair.rewritten.meter == "allocator"
        allowed_nbytes = terms.allowed_nbytes if is_judged else None
        numbers = _judge_numbers(pair, number)
        order = _judge_order(pair, terms.fences) if number == 1 else None
        reasons = (
            _explain_numbers(pair, number) if numbers == "different" else "",
            _explain_order(pair) if order == "different" and _promises_order(pair, terms) else "",
            _explain_peak(peak_nbytes, allowed_nbytes),
        )
        where = f"{NAMES[pair.manner]}, run {number}"
        failures = tuple(f"{where}: {reason}" for reason in reasons if reason)
        verdict: Verdict = "pass" if is_judged or number == 1 else "reported"
        yield Row(
            pair.manner, number, peak_nbytes, allowed_nbytes, numbers, order, failures,
            "fail" if failures else verdict,
        )  # fmt: skip


def _promises_peak(manner: Manner, run: int, fences: Fences) -> bool:
    if manner == "scheduled":
        return True
    return fences == "all" and (manner == "default-no-pattern" or run == 1)


def _promises_order(pair: Pair, terms: Terms) -> bool:
    return pair.manner == "scheduled" or terms.fences != "none"


def _judge_numbers(pair: Pair, run: int) -> Numbers:
    if run > 1 and not pair.is_repeatable:
        return "different"
    if not pair.differences:
        return "equal"
    return "different" if _list_wrong(pair) else "rounded"


def _list_wrong(pair: Pair) -> list[Difference]:
    """Return the differences that nothing excuses."""
    is_fusing = pair.manner != "scheduled"
    return [
        found
        for found in pair.differences
        if not found.is_rounding or not (is_fusing or found.name in pair.varying)
    ]


def _judge_order(pair: Pair, fences: Fences) -> OrderFound:
    if pair.order.misplaced:
        return "different"
    is_coarse = pair.manner != "scheduled" and fences == "run"
    return "windows kept" if is_coarse else "as scheduled"


def _explain_numbers(pair: Pair, run: int) -> str:
    if run > 1 and not pair.is_repeatable:
        return "the outputs are not those of the first run, where the original repeats its own"
    wrong = _list_wrong(pair)
    first = wrong[0]
    return (
        f"{len(wrong)} outputs differ; the first is {first.name!r},"
        f" {first.n_elements} elements by up to {first.max_error:g}"
    )


def _explain_order(pair: Pair) -> str:
    scheduled, executed = pair.order.misplaced[0]
    return f"onnxruntime ran {executed!r} where {scheduled!r} is scheduled"


def _explain_peak(peak_nbytes: int | None, allowed_nbytes: int | None) -> str:
    if peak_nbytes is None or allowed_nbytes is None or peak_nbytes <= allowed_nbytes:
        return ""
    return (
        f"the peak is {format_nbytes_exactly(peak_nbytes)},"
        f" {peak_nbytes - allowed_nbytes:,} B above what is allowed"
    )


def _judge_proof(proof: Proof | None) -> Iterator[ProofRow]:
    if proof is None:
        return
    limit = f"arena of {proof.limit_nbytes:,} B"
    failures: tuple[str, ...] = ()
    if proof.is_planned and proof.refusal is not None:
        failures = (f"{limit}: the rewritten graph is {proof.refusal}",)
    verdict: Verdict = "pass" if proof.refusal is None else "reported"
    yield ProofRow("rewritten", proof.refusal, failures, "fail" if failures else verdict)
    failures = ()
    must_fail = proof.is_original_too_large
    if must_fail and proof.original_refusal is None:
        failures = (f"{limit}: the original runs in it, although it asks for more",)
    verdict = "pass" if must_fail else "reported"
    yield ProofRow("original", proof.original_refusal, failures, "fail" if failures else verdict)
