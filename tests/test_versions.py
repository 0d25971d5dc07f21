"""The bench of rewritten files under other versions of onnxruntime: its judgement, its runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from checkmate.runtime.resident import is_measurable
from onnx_models import save

BENCH = Path(__file__).parent.parent / "bench"
needs_pages = pytest.mark.skipif(not is_measurable(), reason="needs Linux's VmHWM")

RELAYS = """
relays (float[N] x) => (float y) {
    a = Sin(x)
    b = Cos(a)
    c = Sin(b)
    y = ReduceSum <keepdims = 0> (c)
}
"""
N = 1 << 20
"""So that a tensor has 4 MiB."""


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module("versions")
    for name in ("versions", "versions_run"):
        sys.modules.pop(name)


def make_case(versions: ModuleType, **changes: object) -> object:
    case = versions.Case(
        name="g",
        original="",
        rewritten="",
        feeds="",
        inputs_nbytes=0,
        budget_nbytes=50 << 20,
        plan_nbytes=49 << 20,
        nodes=("a", "b", "a__recompute1", "c"),
    )
    return replace(case, **changes)


def make_seen(versions: ModuleType, **changes: object) -> object:
    peaks = (50 << 20, 50 << 20, 50 << 20)
    seen = versions.Seen(
        version="1.2.3",
        original_nbytes=(90 << 20,),
        default_nbytes=(50 << 20, 70 << 20, 70 << 20),
        no_pattern_nbytes=peaks,
        fits=True,
        original_fits=False,
        order="kept",
        n_copies=1,
        outputs="equal",
    )
    return replace(seen, **changes)


def test_a_run_as_planned_is_not_complained_about(versions: ModuleType) -> None:
    assert list(versions.judge(make_case(versions), make_seen(versions))) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"default_nbytes": (52 << 20, 0, 0)}, "default options: 54,525,952 B"),
        ({"no_pattern_nbytes": (0, 0, 52 << 20)}, "no pattern: 54,525,952 B"),
        ({"fits": False}, "does not run in an arena of 125 %"),
        ({"original_fits": True}, "it proves nothing"),
        ({"order": "lost"}, "order of the file"),
        ({"outputs": "differ"}, "outputs differ"),
    ],
)
def test_each_failure_is_named(
    changes: dict[str, object], message: str, versions: ModuleType
) -> None:
    complaints = list(versions.judge(make_case(versions), make_seen(versions, **changes)))
    assert [message in complaint for complaint in complaints] == [True]
    assert complaints[0].startswith("onnxruntime 1.2.3, g: ")


@pytest.mark.parametrize(
    ("executed", "expected"),
    [
        (["a", "fence", "b", "a__recompute1", "c"], True),
        (["a", "b", "fused", "c"], True),
        (["a", "a__recompute1", "b", "c"], False),
        (["a", "b", "b", "c"], False),
    ],
)
def test_order_is_that_of_the_nodes_that_kept_their_names(
    executed: list[str], expected: bool, versions: ModuleType
) -> None:
    assert versions.is_in_order(make_case(versions), executed) == expected


def make_job(versions: ModuleType, folder: Path) -> object:
    path = save(folder, RELAYS)
    feeds = folder / "feeds.npz"
    np.savez(feeds, **{"0": np.linspace(0, 1, N, dtype=np.float32)})
    return versions.Job(str(path), str(feeds), str(folder / "outputs.npz"))


@needs_pages
def test_the_peak_of_a_chain_is_two_tensors_in_its_default_order(
    versions: ModuleType, tmp_path: Path
) -> None:
    job = replace(make_job(versions, tmp_path), has_pattern=False)
    seen = versions.run_job(Path(sys.executable), job)
    assert len(seen["executed"]) == 4
    assert len(seen["run_nbytes"]) == 3
    for nbytes in seen["run_nbytes"]:
        assert nbytes == pytest.approx(2 * 4 * N, abs=versions.RESOLUTION_NBYTES)


@pytest.mark.parametrize(("n_tensors", "fits"), [(2, True), (1, False)])
def test_an_arena_of_two_tensors_is_enough_for_a_chain_and_one_is_not(
    n_tensors: int, fits: bool, versions: ModuleType, tmp_path: Path
) -> None:
    limit_nbytes = n_tensors * 4 * N + 4096
    job = replace(make_job(versions, tmp_path), has_pattern=False, limit_nbytes=limit_nbytes)
    seen = versions.run_job(Path(sys.executable), job)
    assert seen["fits"] is fits
    assert ("Available memory of" in seen["reason"]) is not fits


def test_outputs_that_differ_in_one_bit_are_told_apart(
    versions: ModuleType, tmp_path: Path
) -> None:
    first = versions.Job("", "", str(tmp_path / "first.npz"))
    second = replace(first, outputs=str(tmp_path / "second.npz"))
    np.savez(first.outputs, **{"0": np.array([1.0, 0.0], np.float32)})
    np.savez(second.outputs, **{"0": np.array([1.0, -0.0], np.float32)})
    assert versions.find_worst(first, first) == 0
    assert 0 < versions.find_worst(first, second) <= versions.MAX_ERROR


def test_a_version_that_cannot_be_installed_is_said_so(
    versions: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(versions.InstallError, match=r"cannot install onnxruntime==\? for Python"):
        versions.install("?", tmp_path / "venv")
