"""One time limit for searches in turn."""

from __future__ import annotations

import time

import pytest

from checkmate.engine.clock import Clock
from checkmate.search.finding import Limits


def test_what_one_search_takes_is_gone_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    clock = Clock(Limits(time_s=60))
    assert clock.take(0.75).time_s == pytest.approx(45)
    now_s[0] += 50
    assert clock.take(0.5).time_s == pytest.approx(5)
    now_s[0] += 10.5
    assert clock.take().time_s == 0
    assert not clock.is_over
    now_s[0] += 1
    assert clock.is_over


def test_without_a_limit_there_is_none() -> None:
    assert Clock(Limits()).take(0.5) == Limits()
    assert not Clock(Limits()).is_over
