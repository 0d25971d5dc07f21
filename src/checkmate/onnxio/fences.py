"""Fences: data dependencies that keep a schedule's order whatever sorts or merges its nodes.

onnxruntime's default order postpones what nothing waits for, and its optimizers merge equal nodes
and move them. A fence puts the order into the graph itself: the sizes of what one window of the
schedule makes, times zero, are the shape under which the next window reads its inputs. A zero in
the shape of a Reshape copies that dimension, so the tensors are what they were: the same bytes in
the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set

import onnx

from checkmate.errors import InputError
from checkmate.graph import OpId
from checkmate.onnxio.drawing import can_wait, make_waiting
from checkmate.onnxio.fence_maker import FenceMaker
from checkmate.onnxio.hiding import find_packed, hide_inputs
from checkmate.onnxio.instances import find_types
from checkmate.onnxio.model import Model, TensorType
from checkmate.onnxio.names import find_names
from checkmate.onnxio.order import Wiring, name_weights, wire
from checkmate.onnxio.renaming import rename_reads
from checkmate.onnxio.waiting import find_sizeless
from checkmate.onnxio.windows import (
    FENCES,
    PRODUCTS,
    Fences,
    find_bypassed,
    find_roots,
    find_sinks,
    is_early,
    is_view,
    split_windows,
)

_MIN_OPSET = 9
"""The first whose Constant may hold integers."""
_SHAPED_BY = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}
"""Ops of which an input is the shape of the output: its position."""
_LARGE = 1024
"""Elements from which a tensor's memory matters."""


def parse_fences(text: str) -> Fences:
    """Return the choice that ``text`` names; raise `InputError` when it names none."""
    for fences in FENCES:
        if fences == text:
            return fences
    raise InputError(f"fences {text!r} are not known", hint=f"known are {', '.join(FENCES)}")


def find_obstacle(model: Model, provider: str | None = "cuda") -> str | None:
    """Return why ``model`` cannot have fences with ``provider``; None: it can."""
    opset = _find_opset(model)
    if opset < _MIN_OPSET:
        return f"opset {opset} has no integer constants, which fences need"
    sizeless = None if provider == "cuda" else find_sizeless(model)
    if sizeless is not None:
        elem_type = onnx.TensorProto.DataType.Name(model.types[sizeless].elem_type).lower()
        return f"on the CPU, onnxruntime has no Size of {elem_type} tensors like {sizeless!r}"
    if provider != "cuda" and not model.is_optimized:
        halved = next((name for name, known in model.types.items() if known.is_half), None)
        if halved is not None:
            return f"they would move the casts that onnxruntime puts around halves like {halved!r}"
    return None


def _find_opset(model: Model) -> int:
    """Return the version of the standard operators; 0: the model imports none."""
    imports = model.proto.opset_import
    return max((int(e.version) for e in imports if e.domain in ("", "ai.onnx")), default=0)


def add_fences(
    model: Model, order: Sequence[OpId], nodes: Sequence[onnx.NodeProto], fences: Fences
) -> tuple[onnx.NodeProto, ...]:
    """Return ``nodes``, one per compute of ``order``, with fences among them.

    ``nodes`` are changed in place: roots read fenced tensors. Raises `InputError` when the model
    cannot have fences.
    """
    if fences == "none":
        return tuple(nodes)
    obstacle = find_obstacle(model)
    if obstacle is not None:
        raise InputError(f"no fences for this model: {obstacle}", hint="use --fences none")
    return tuple(_Fencer(model, order, nodes, fences).run())


class _Fencer:
    """Emits the nodes window by window, fences before and among them."""

    def __init__(
        self,
        model: Model,
        order: Sequence[OpId],
        nodes: Sequence[onnx.NodeProto],
        fences: Fences,
    ) -> None:
        graph = model.proto.graph
        types = find_types(model, order, nodes)
        self._shapes = {name: known.shape for name, known in types.items()}
        halves = {name: known for name, known in types.items() if known.is_half}
        self._maker = FenceMaker(find_names(graph, nodes), _find_opset(model), halves)
        self._constants = _find_constants(graph)
        if fences == "all":
            self._make_waiting(nodes, types)
            names = [item.name for item in graph.input]
            names += find_packed(name_weights(graph), types)
            given = {name: self._shapes[name] for name in names}
            self._shapes |= hide_inputs(nodes, given, self._maker)
        self._wirings = tuple(wire(node) for node in nodes)
        self._windows = split_windows(order, self._wirings, fences)
        self._bypassed = find_bypassed(self._windows, self._wirings)
        self._floating = frozenset(
            position
            for position, (op, wiring) in enumerate(zip(order, self._wirings, strict=True))
            if is_early(wiring)
            or (fences == "run" and (is_view(wiring) or _follows_from_shapes(model, op)))
        )
        self._read = {name for wiring in self._wirings for name in wiring.reads}
        self._read.update(output.name for output in graph.output)
        self._due: list[str] = []
        """Tensors that the next fence measures beside the sinks."""
        self._hides_shapes = fences == "all"

    def _make_waiting(
        self, nodes: Sequence[onnx.NodeProto], types: Mapping[str, TensorType]
    ) -> None:
        """Make those of ``nodes`` that read nothing read a constant, which a fence can hold."""
        for node in filter(can_wait, nodes):
            condition = self._maker.find_true()
            self._shapes[condition] = ()
            self._constants |= {condition}
            make_waiting(node, types[node.output[0]], condition)

    def run(self) -> list[onnx.NodeProto]:
        before: list[Wiring] = []
        for window in self._windows:
            roots = find_roots(window, self._wirings, self._floating)
            if not before:
                roots = self._start_without_shapes(window, roots)
            elif roots:
                self._maker.start_fence(window.start, (*self._find_ends(before), *self._due))
                self._due.clear()
                before.clear()
            self._emit(window, roots)
            before += self._wirings[window.start : window.stop]
        for name in self._due:
            self._maker.measure(name)
        return self._maker.nodes

    def _start_without_shapes(self, window: range, roots: tuple[int, ...]) -> tuple[int, ...]:
        """Begin a fence before the first window, where shapes are to be hidden; return its roots.

        It waits for an input of the graph, which holds nothing back, but makes shapes unknown.
        """
        for position in roots if self._hides_shapes else ():
            name = self._choose_read(self._wirings[position], frozenset())
            if name not in self._constants:
                self._maker.start_fence(window.start, (name,))
                return roots
        return ()

    def _emit(self, window: range, roots: Sequence[int]) -> None:
        views = {
            self._wirings[position].makes[0]
            for position in window
            if is_view(self._wirings[position]) and position not in roots
        }
        for position in window:
            wiring = self._wirings[position]
            if position in roots:
                self._fence(wiring, views)
            if self._hides_shapes and self._maker.has_fence:
                self._hide_shape(wiring)
            if wiring.node.op_type in PRODUCTS:
                self._keep_transposed(wiring)
            self._maker.nodes.append(wiring.node)

    def _fence(self, root: Wiring, views: Set[str]) -> None:
        """Make ``root`` read one of its tensors through the fence.

        onnxruntime fuses a Reshape with a view that alone reads it, which would take the fence
        away: between such neighbours a Size reads the tensor too.
        """
        name = self._choose_read(root, views)
        fenced = self._maker.fence(name, len(self._shapes[name]), guarded=name in views)
        rename_reads(root.node, {name: fenced})
        if is_view(root):
            self._due.append(fenced)

    def _keep_transposed(self, product: Wiring) -> None:
        """Let ``product`` read what a Transpose makes, or the next fence, where there is none yet.

        Behind a Reshape, onnxruntime does not see that it was transposed.
        """
        names = [name for name in product.reads if name in self._bypassed]
        if not self._maker.has_fence:
            self._due += names
            return
        for name in names:
            kept = self._maker.fence(name, len(self._shapes[name]), guarded=False)
            rename_reads(product.node, {name: kept})

    def _hide_shape(self, wiring: Wiring) -> None:
        """Let what is made in a constant shape get it from the fence.

        Of tensors whose shapes it knows before the run, onnxruntime keeps dead ones for later ones
        of their shape; behind a fence it knows none but these.
        """
        place = _SHAPED_BY.get(wiring.node.op_type)
        if place is None or math.prod(self._shapes[wiring.makes[0]]) < _LARGE:
            return
        name = wiring.node.input[place]
        if name in self._constants:
            rename_reads(wiring.node, {name: self._maker.hide(name, math.prod(self._shapes[name]))})

    def _choose_read(self, root: Wiring, views: Set[str]) -> str:
        """Return what to fence: what is computed before what is given, the largest tensor first.

        Small tensors may be shapes or axes, which kernels want on the host or as constants.
        """
        explicit = [str(name) for name in root.node.input if name]
        if is_view(root):
            return explicit[0]
        return max(
            explicit or root.reads,
            key=lambda name: (
                name not in self._constants,
                name not in views,
                math.prod(self._shapes[name]),
            ),
        )

    def _find_ends(self, window: Sequence[Wiring]) -> Iterator[str]:
        """Yield tensors that are all made only once ``window`` has run.

        One of each sink, and what nobody reads: onnxruntime frees it after the fence has read it.
        """
        sinks = find_sinks(window)
        for number, wiring in enumerate(window):
            unread = [name for name in wiring.makes if name not in self._read]
            yield from unread
            if wiring.makes and not unread and number in sinks:
                yield min(wiring.makes, key=lambda name: math.prod(self._shapes[name]))


def _follows_from_shapes(model: Model, op: OpId) -> bool:
    """Return whether all that ``op`` makes is small and known before the run."""
    return all(name in model.values for name in model.nodes[op].output if name)


def _find_constants(graph: onnx.GraphProto) -> frozenset[str]:
    made = (name for node in graph.node if node.op_type == "Constant" for name in node.output)
    return frozenset((*name_weights(graph), *made))
