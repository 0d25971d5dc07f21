"""Child side of a race: models on equal inputs, run in turn, so that load hits them alike."""

from __future__ import annotations

from checkmate.runtime.inputs import make_inputs
from checkmate.runtime.protocol import RaceTask, Reply
from checkmate.runtime.running import Binding
from checkmate.runtime.session import Instruments, choose_clock, make_session


def race(task: RaceTask) -> Reply:
    """Return the times of every model's runs, in rounds of one run each."""
    feeds = make_inputs(task.specs, task.seed)
    instruments = Instruments()
    bindings = [
        Binding(make_session(model, task.settings, instruments), task.settings, feeds)
        for model in task.models
    ]
    read_clock = choose_clock(task.settings)
    times_ns: list[list[int]] = [[] for _ in bindings]
    # The first round pays for what is set up lazily.
    for number in range(task.n_rounds + 1):
        for binding, own_ns in zip(bindings, times_ns, strict=True):
            start_ns = read_clock()
            binding.run()
            if number:
                own_ns.append(read_clock() - start_ns)
            binding.clear_outputs()
    return {"times_ns": times_ns}
