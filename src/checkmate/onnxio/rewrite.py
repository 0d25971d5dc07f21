"""A schedule as an ONNX model: nodes in schedule order, copies for recomputes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

import onnx

from checkmate.graph import OpId, TensorId
from checkmate.onnxio.fence_maker import PREFIX
from checkmate.onnxio.fences import add_fences
from checkmate.onnxio.instances import find_types
from checkmate.onnxio.model import Model
from checkmate.onnxio.names import find_names
from checkmate.onnxio.order import HOISTED_OPS, wire
from checkmate.onnxio.renaming import rename_reads
from checkmate.onnxio.scans import state_scanned
from checkmate.onnxio.values import Opsets
from checkmate.onnxio.waiting import choose_reader
from checkmate.onnxio.windows import Fences
from checkmate.schedule import Schedule

COPY_ATTRIBUTE = "__recompute"
"""Set on copies. onnx and onnxruntime ignore attributes whose name starts with two underscores,
except that common subexpression elimination does not merge nodes that differ in one."""

_GEMM_ACTIVATIONS = frozenset(
    {"Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh"}
    | {"ThresholdedRelu"}
)
"""What onnxruntime fuses into the Gemm before it, in its gemm_activation_fusion.cc. It gives the
new node all attributes of both, those of the activation under other names, which it then refuses.
No other fusion does so."""


def rewrite_model(model: Model, schedule: Schedule, fences: Fences = "none") -> onnx.ModelProto:
    """Return the model that runs ``schedule``.

    Its inputs, outputs, opsets, metadata and initializers are those of ``model``. Nodes have the
    names of their ops; the k-th recompute of a node and what it makes are named
    ``<name>__recompute<k>``. A graph output keeps its name, which its last compute makes.

    With fences, the file does not say the types of what nodes make: where onnxruntime knows the
    shape of two tensors and it is the same, its default options keep the memory of the first for
    the second.
    """
    rewritten = onnx.ModelProto()
    rewritten.CopyFrom(model.proto)
    del rewritten.graph.node[:]
    constants = (node for node in model.proto.graph.node if node.op_type == "Constant")
    rewritten.graph.node.extend(constants)
    if fences != "none":
        del rewritten.graph.value_info[:]
    rewritten.graph.node.extend(rewrite_nodes(model, schedule, fences))
    return rewritten


def is_rewritten(proto: onnx.ModelProto) -> bool:
    """Return whether ``proto`` has copies or fences that `rewrite_model` adds."""
    return any(
        node.name.startswith(PREFIX) or any(a.name == COPY_ATTRIBUTE for a in node.attribute)
        for node in proto.graph.node
    )


def rewrite_nodes(model: Model, schedule: Schedule, fences: Fences) -> tuple[onnx.NodeProto, ...]:
    """Return the nodes of the rewritten model, but for the constants of ``model``."""
    computes = _Rewriter(model, schedule).run()
    types = find_types(model, schedule.order, computes)
    opset = Opsets(tuple(model.proto.opset_import)).find("")
    readers = {name: choose_reader(known, opset) for name, known in types.items()}
    fenced = add_fences(model, schedule.order, computes, fences)
    outputs = {out.name for out in model.proto.graph.output}
    return tuple(_release_unread(fenced, outputs, readers))


def name_computes(model: Model, schedule: Schedule) -> tuple[str, ...]:
    """Return the name of the node that each compute of ``schedule`` becomes, in its order."""
    return tuple(node.name for node in _Rewriter(model, schedule).run())


def name_nodes(nodes: Sequence[onnx.NodeProto]) -> tuple[str, ...]:
    """Return the names of rewritten ``nodes`` in their order, Shape and Size and constants apart.

    These run where they like.
    """
    hoisted = {node.name for node in nodes if node.op_type in HOISTED_OPS}
    return tuple(n.name for n in nodes if n.name not in hoisted and n.op_type != "Constant")


def find_chained_casts(nodes: Sequence[onnx.NodeProto]) -> frozenset[str]:
    """Return the names of the Casts among ``nodes`` that read a Cast or that a Cast reads.

    Where nothing is lost on the way, onnxruntime leaves out such Casts whatever the options say.
    """
    casts = [node for node in nodes if node.op_type == "Cast" and node.domain in ("", "ai.onnx")]
    made = {node.output[0] for node in casts}
    read = {node.input[0] for node in casts}
    return frozenset(n.name for n in casts if n.input[0] in made or n.output[0] in read)


def name_recompute(name: str, number: int) -> str:
    """Return the name of the recompute ``number`` (from 1) of what is called ``name``."""
    return f"{name}__recompute{number}"


def _release_unread(
    nodes: Sequence[onnx.NodeProto], outputs: Container[str], readers: Mapping[str, str | None]
) -> Iterator[onnx.NodeProto]:
    """Yield ``nodes``, and after each one a reader for what nobody reads of it.

    onnxruntime frees a tensor after its last reader; one without a reader stays to the end of the
    run. The size of it is a few bytes, and so is the shape. ``readers`` are operators that read
    what computes make.
    """
    read = {name for node in nodes for name in wire(node).reads}
    taken = {name for node in nodes for name in (node.name, *node.input, *node.output)}
    for node in nodes:
        yield node
        if node.op_type in HOISTED_OPS:
            continue
        for name in node.output:
            reader = readers.get(name, "Size")
            if name and reader and name not in read and name not in outputs:
                released = f"{name}__released"
                while released in taken or released in outputs:
                    released += "_"
                taken.add(released)
                yield onnx.helper.make_node(reader, [name], [released], name=released)


class _Rewriter:
    """Emits one node per compute, reading the latest instance of each tensor."""

    def __init__(self, model: Model, schedule: Schedule) -> None:
        self._model = model
        self._order = schedule.order
        self._n_computes = Counter(self._order)
        self._n_done: Counter[OpId] = Counter()
        graph = model.graph
        self._outputs = frozenset(graph.outputs)
        self._ids = {tensor.name: TensorId(i) for i, tensor in enumerate(graph.tensors)}
        self._taken = {*find_names(model.proto.graph), *(op.name for op in graph.ops)}
        self._current: dict[str, str] = {}
        self._read: set[tuple[OpId, tuple[str, ...]]] = set()
        """What computes so far read."""

    def run(self) -> list[onnx.NodeProto]:
        return [self._emit(op) for op in self._order]

    def _emit(self, op: OpId) -> onnx.NodeProto:
        number = self._n_done[op]
        self._n_done[op] += 1
        node = onnx.NodeProto()
        node.CopyFrom(self._model.nodes[op])
        node.name = self._model.graph.ops[op].name
        state_scanned(self._model, node, next(filter(None, node.output), ""))
        if number:
            node.name = self._reserve(name_recompute(node.name, number))
        rename_reads(node, self._current)
        if number and self._needs_mark(op, node):
            node.attribute.append(onnx.helper.make_attribute(COPY_ATTRIBUTE, number))
        self._read.add((op, tuple(node.input)))
        for position, name in enumerate(node.output):
            if name:
                self._current[name] = node.output[position] = self._name_instance(op, name, number)
        return node

    def _needs_mark(self, op: OpId, node: onnx.NodeProto) -> bool:
        """Return whether ``node``, which computes ``op`` again, is kept apart by its mark alone.

        A Gemm is fused with its only reader. Where an earlier compute has read the same tensor
        there are two; where none has, no node is equal to this one anyway.
        """
        is_fused = node.domain in ("", "ai.onnx") and node.op_type in _GEMM_ACTIVATIONS
        return not is_fused or (op, tuple(node.input)) in self._read

    def _name_instance(self, op: OpId, name: str, number: int) -> str:
        """Return the name of what compute ``number`` (from 0) of ``op`` makes for ``name``."""
        if self._ids[name] not in self._outputs:
            return self._reserve(name_recompute(name, number)) if number else name
        is_last = number == self._n_computes[op] - 1
        return name if is_last else self._reserve(f"{name}__early{number + 1}")

    def _reserve(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
