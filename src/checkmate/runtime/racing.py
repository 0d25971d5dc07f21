"""Child side of a race: models on equal inputs, run in turn, so that load hits them alike.

Where the pages of a session lie in the memory decides which of them push each other out of a cache:
of two sessions of one model, one may be slower by a tenth for as long as both live. Hence several
of each, made in turn, each time the other way round, as the first get the worst pages.
"""

from __future__ import annotations

from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import RaceTask, Reply
from checkmate.runtime.running import Binding
from checkmate.runtime.session import Instruments, choose_clock, make_session


def race(task: RaceTask) -> Reply:
    """Return the times of every model's runs, in rounds of one run of each session."""
    feeds = make_inputs(task.specs, task.seed)
    starters: list[tuple[int, Binding]] = []
    numbers = range(len(task.models))
    for n_made in range(task.n_sessions):
        for number in reversed(numbers) if n_made % 2 else numbers:
            session = make_session(task.models[number], task.settings, Instruments())
            # Only what a session asks for in a run decides where its arena lies.
            starters.append((number, Binding(session, task.settings, feeds)))
            starters[-1][1].run()
            starters[-1][1].clear_outputs()
    read_clock = choose_clock(task.settings)
    times_ns: list[list[int]] = [[] for _ in numbers]
    for _ in range(task.n_rounds):
        for number, binding in starters:
            start_ns = read_clock()
            binding.run()
            times_ns[number].append(read_clock() - start_ns)
            binding.clear_outputs()
    return {"times_ns": times_ns}
