"""One HiGHS object, from the model to the checked answer; the only place that knows highspy.

HiGHS is believed as little as possible. Each rule below answers a wrong answer that it gave:

- every returned status is checked, since a refused option or model raises nothing;
- there is a solution when the primal status says so, whatever the model status: a time limit
  without a solution fills the values all the same;
- "infeasible" next to a solution or an objective is a lie;
- the gap is computed by the caller: HiGHS calls a solution optimal that reached the gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from checkmate.errors import SolverError
from checkmate.milp.model import FloatArray, Program
from checkmate.solver.result import SEED, THREADS, MilpResult, Settings, Status

if TYPE_CHECKING:
    import highspy

Incumbent = Callable[[FloatArray, float, float], None]
"""Called with the values, objective and bound of each better solution."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a running solve tells and asks."""

    on_incumbent: Incumbent = lambda values, objective, bound: None
    is_stopped: Callable[[], bool] = lambda: False


class Session:
    """One HiGHS object and the program that it has."""

    def __init__(
        self, program: Program, settings: Settings, watch: Watch, *, presolve: str
    ) -> None:
        # Imported here so that only a solve pays for it; a banner goes to standard output.
        import highspy  # noqa: PLC0415

        self._api = highspy
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self._program = program
        self._watch = watch
        self._target = math.inf if settings.target is None else settings.target
        self._has_enough = False
        self._set_options(settings, presolve)
        self._pass_model()
        self._subscribe()

    def begin_from(self, start: FloatArray) -> None:
        """Begin from the solution ``start``."""
        solution = self._api.HighsSolution()
        solution.col_value = list(start)
        self._check(self._highs.setSolution(solution), "the start")

    def run(self, time_s: float | None = None) -> MilpResult | None:
        """Return the answer after at most ``time_s``; None: it contradicts itself.

        The bound of a linear program that was not solved is minus infinity.
        """
        if time_s is not None:  # HiGHS counts from the first run on
            self._set_option("time_limit", self._highs.getRunTime() + time_s)
        self._check(self._highs.run(), "the run", may_warn=True)
        return self._read_answer()

    def add_rows(self, rows: Program) -> None:
        """Add the rows of ``rows``, of the same columns, to the program."""
        status = self._highs.addRows(
            rows.n_rows,
            rows.row_lower,
            rows.row_upper,
            len(rows.values),
            rows.starts[:-1],
            rows.indices,
            rows.values,
        )
        self._check(status, "more rows")

    def find_duals(self) -> FloatArray:
        """Return the multiplier of each row as HiGHS has it now, in the order of the rows."""
        return np.array(self._highs.getSolution().row_dual, dtype=np.float64)

    def _set_options(self, settings: Settings, presolve: str) -> None:
        options: dict[str, bool | int | float | str] = {
            "output_flag": False,
            "threads": THREADS,
            "random_seed": SEED,
            "presolve": presolve,
            "mip_rel_gap": settings.gap,
            "mip_abs_gap": 0.0,
            "mip_heuristic_effort": 0.2,
        }
        if settings.nodes is not None:
            options["mip_max_nodes"] = settings.nodes
        for name, value in options.items():
            self._set_option(name, value)

    def _set_option(self, name: str, value: bool | int | float | str) -> None:
        self._check(self._highs.setOptionValue(name, value), f"option {name}")

    def _pass_model(self) -> None:
        program = self._program
        status = self._highs.passModel(
            program.n_cols,
            program.n_rows,
            len(program.values),
            int(self._api.MatrixFormat.kRowwise),
            int(self._api.ObjSense.kMinimize),
            program.offset,
            program.cost,
            program.lower,
            program.upper,
            program.row_lower,
            program.row_upper,
            program.starts,
            program.indices,
            program.values,
            program.is_integer.astype(np.int32),
        )
        self._check(status, "the model")

    def _subscribe(self) -> None:
        def tell(event: highspy.highs.HighsCallbackEvent) -> None:
            out = event.data_out
            values = np.array(out.mip_solution, dtype=np.float64)
            if len(values) == self._program.n_cols:
                self._watch.on_incumbent(values, out.objective_function_value, out.mip_dual_bound)

        def ask(event: highspy.highs.HighsCallbackEvent) -> None:
            if self._watch.is_stopped():
                event.interrupt()

        def ask_mip(event: highspy.highs.HighsCallbackEvent) -> None:
            self._has_enough |= event.data_out.mip_dual_bound >= self._target
            if self._has_enough:
                event.interrupt()
            ask(event)

        self._highs.cbMipImprovingSolution.subscribe(tell)
        self._highs.cbMipInterrupt.subscribe(ask_mip)
        self._highs.cbSimplexInterrupt.subscribe(ask)

    def _check(self, status: highspy.HighsStatus, what: str, *, may_warn: bool = False) -> None:
        allowed = {self._api.HighsStatus.kOk}
        if may_warn:  # a limit that was reached is a warning
            allowed.add(self._api.HighsStatus.kWarning)
        if status not in allowed:
            raise SolverError(f"HiGHS refused {what}: {status.name}")

    def _read_answer(self) -> MilpResult | None:
        info, solution = self._highs.getInfo(), self._highs.getSolution()
        is_mip = bool(self._program.is_integer.any())
        status = self._read_status()
        feasible = int(self._api.SolutionStatus.kSolutionStatusFeasible)
        has_values = info.primal_solution_status == feasible and solution.value_valid
        values = np.array(solution.col_value, dtype=np.float64) if has_values else None
        objective = info.objective_function_value if has_values else math.inf
        if status == "infeasible":
            is_lie = has_values or (is_mip and math.isfinite(info.objective_function_value))
            return None if is_lie else self._make_result(status, None, (math.inf, math.inf))
        bound = -math.inf
        if is_mip:
            bound = info.mip_dual_bound
        elif status == "solved":
            bound = objective
        return self._make_result(status, values, (objective, bound))

    def _make_result(
        self, status: Status, values: FloatArray | None, known: tuple[float, float]
    ) -> MilpResult:
        objective, bound = known
        if math.isnan(objective) or math.isnan(bound):
            raise SolverError("HiGHS returned a bound or objective that is not a number")
        if status == "solved" and values is None:
            raise SolverError("HiGHS says it solved a program but gives no solution of it")
        nodes = max(int(self._highs.getInfo().mip_node_count), 0)
        return MilpResult(status, values, objective, bound, nodes, self._highs.version())

    def _read_status(self) -> Status:
        kinds = self._api.HighsModelStatus
        meanings: dict[object, Status] = {
            kinds.kOptimal: "solved",
            kinds.kInfeasible: "infeasible",
            kinds.kUnboundedOrInfeasible: "infeasible",  # no program of ours is unbounded
            kinds.kTimeLimit: "limit",
            kinds.kIterationLimit: "limit",
            kinds.kSolutionLimit: "limit",
            kinds.kInterrupt: "interrupted",
        }
        status = self._highs.getModelStatus()
        if status not in meanings:
            raise SolverError(f"HiGHS failed: {self._highs.modelStatusToString(status)}")
        if self._has_enough and status == kinds.kInterrupt:
            return "limit"
        return meanings[status]
