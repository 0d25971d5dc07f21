"""What ``check --run`` says: a table for people, a document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from checkmate.cli.report import count_things, echo_note, print_table
from checkmate.formats.schedule_json import ScheduleRecord
from checkmate.runtime.execute import RunResult
from checkmate.trial.judgement import NAMES, Judgement, Row, count_varying, find_pattern_block
from checkmate.trial.proof import Proof
from checkmate.trial.runs import Trial
from checkmate.units import format_nbytes, format_ns, format_ratio


def make_document(trial: Trial, judgement: Judgement) -> dict[str, object]:
    """Return the figures for ``--json``."""
    first = trial.pairs[0]
    block = find_pattern_block(trial)
    return {
        "measured_peak_nbytes": first.rewritten.peak_nbytes,
        "measured_baseline_peak_nbytes": first.original.peak_nbytes,
        "measured_time_ns": first.rewritten.time_ns,
        "measured_baseline_time_ns": first.original.time_ns,
        "outputs_equal": not first.differences,
        "outputs_compared_with_one_thread": first.is_single_threaded,
        "outputs_varying": list(first.varying),
        "order_equal": not first.order.misplaced,
        "runs": [_describe_row(row) for row in judgement.rows],
        "arena": None if judgement.proof is None else _describe_proof(judgement),
        "memory_pattern": None
        if block is None
        else {"first_peak_nbytes": block[0], "later_peak_nbytes": block[1]},
        "failures": list(judgement.failures),
    }


def _describe_row(row: Row) -> dict[str, object]:
    return {
        "options": row.manner,
        "run": row.run,
        "peak_nbytes": row.peak_nbytes,
        "allowed_nbytes": row.allowed_nbytes,
        "outputs": row.numbers,
        "order": row.order,
        "verdict": row.verdict,
    }


def _describe_proof(judgement: Judgement) -> dict[str, object]:
    proof = cast("Proof", judgement.proof)
    return {
        "limit_nbytes": proof.limit_nbytes,
        "planned": proof.is_planned,
        "smallest_limit_nbytes": proof.smallest_nbytes,
        "graphs": [
            {"graph": row.graph, "completes": row.refusal is None, "refusal": row.refusal,
             "verdict": row.verdict}
            for row in judgement.proof_rows
        ],
    }  # fmt: skip


def print_trial(trial: Trial, judgement: Judgement, record: ScheduleRecord) -> None:
    """Print both graphs side by side, every run with its verdict, and the reasons."""
    _print_graphs(trial, record)
    echo_note("")
    headers = ("options", "run", "peak", "allowed", "outputs", "order", "verdict")
    print_table(headers, [_format_row(row) for row in judgement.rows])
    if judgement.proof is not None:
        _print_proof(judgement.proof, judgement)
    for note in _list_notes(trial, judgement):
        echo_note(note)
    for line in judgement.failures:
        echo_note(f"FAIL {line}")


def _print_graphs(trial: Trial, record: ScheduleRecord) -> None:
    before, after = trial.pairs[0].original, trial.pairs[0].rewritten
    times = before.time_ns or 0, after.time_ns or 0
    rows = [
        ("peak predicted", format_nbytes(record.baseline_peak_nbytes),
         format_nbytes(record.peak_nbytes)),
        ("peak measured", _format_peak(before.peak_nbytes), _format_peak(after.peak_nbytes)),
        ("time predicted", format_ns(record.baseline_time_ns), format_ns(record.time_ns)),
        ("time measured", format_ns(times[0]), format_ns(times[1])),
        ("sum of op costs / measured", _format_share(record.baseline_time_ns, before),
         _format_share(record.time_ns, after)),
        ("overhead predicted", "", format_ratio(record.time_ns, record.baseline_time_ns)),
        ("overhead measured", "", format_ratio(times[1], times[0])),
    ]  # fmt: skip
    print_table(("", "original", f"within {format_nbytes(record.budget_nbytes)}"), rows)


def _format_row(row: Row) -> tuple[str, ...]:
    # Under recommended options only what the original does not repeat is judged to rounding.
    rounded = "to rounding" if row.manner == "scheduled" else "repeated"
    later = {"equal": "repeated", "rounded": rounded, "different": "DIFFERENT"}
    numbers = {"equal": "equal", "rounded": "to rounding", "different": "DIFFERENT"}
    order = {None: "", "different": "DIFFERENT"}
    return (
        NAMES[row.manner],
        str(row.run),
        _format_peak(row.peak_nbytes),
        "" if row.allowed_nbytes is None else format_nbytes(row.allowed_nbytes),
        (numbers if row.run == 1 else later)[row.numbers],
        order.get(row.order, row.order or ""),
        "FAIL" if row.verdict == "fail" else row.verdict,
    )


def _print_proof(proof: Proof, judgement: Judgement) -> None:
    rows = [
        (
            f"{row.graph}, three runs",
            "completes" if row.refusal is None else "ends",
            "FAIL" if row.verdict == "fail" else row.verdict,
        )
        for row in judgement.proof_rows
    ]
    echo_note("")
    print_table((f"arena limited to {proof.limit_nbytes:,} B", "", "verdict"), rows)
    for row in judgement.proof_rows:
        if row.refusal is not None and row.verdict != "fail":
            echo_note(f"{row.graph}: {row.refusal}")


def _list_notes(trial: Trial, judgement: Judgement) -> Iterator[str]:
    yield from _list_number_notes(trial)
    yield from _list_order_notes(trial)
    if trial.pairs[0].rewritten.meter != "allocator":
        yield (
            "peaks are not judged: this onnxruntime does not let its allocations be counted, and"
            " the pages of a process prove nothing"
        )
    block = find_pattern_block(trial)
    if block is not None:
        yield (
            f"memory patterns take {format_nbytes(block[1])} from the second run on,"
            f" {block[1] / block[0]:.2f} times the first: set enable_mem_pattern = False"
        )
    proof = judgement.proof
    if proof is not None and proof.refusal is not None and not proof.is_planned:
        found = proof.smallest_nbytes
        known = "" if found is None else f" The smallest limit found to work is {found:,} B."
        yield (
            f"the schedule was not solved for an arena of this size.{known} Solve with --arena to"
            " fit what onnxruntime's arena adds"
        )


def _list_number_notes(trial: Trial) -> Iterator[str]:
    if any(pair.is_single_threaded for pair in trial.pairs):
        yield (
            "outputs were compared with one thread: with several they were not equal, as kernels"
            " add up in another order then, or race (ScatterND with a reduction)"
        )
    varying = count_varying(trial)
    if varying:
        yield (
            f"{count_things(varying, 'output')} judged to rounding under recommended options: the"
            " original does not repeat them bit for bit from run to run either"
        )


def _list_order_notes(trial: Trial) -> Iterator[str]:
    left_out = max(pair.order.n_left_out for pair in trial.pairs)
    if left_out:
        yield (
            f"onnxruntime left out {count_things(left_out, 'Cast')} between which nothing is lost;"
            " with --optimize basic they are not planned either"
        )
    elsewhere = max(pair.order.n_elsewhere for pair in trial.pairs)
    if elsewhere:
        yield (
            f"the order is judged without {count_things(elsewhere, 'node')} that ran on the CPU,"
            " which onnxruntime runs when nothing on CUDA is ready"
        )
    fused = max(pair.order.n_fused for pair in trial.pairs)
    if fused:
        yield f"under default options, onnxruntime fused or renamed {fused} ops of the schedule"


def _format_share(part_ns: int, whole: RunResult) -> str:
    return f"{part_ns / whole.time_ns:.3f}" if whole.time_ns else "not measured"


def _format_peak(nbytes: int | None) -> str:
    return "not measured" if nbytes is None else format_nbytes(nbytes)
