"""Ops that read nothing, in a form in which they can wait.

onnxruntime runs what reads nothing when it likes, by default before everything else. The body of an
If runs when its condition is there, which a fence can hold back. Each body has a kernel of its own,
with a generator of its own, so that the numbers are those of the op alone.
"""

from __future__ import annotations

import onnx

from checkmate.onnxio.model import TensorType

_OPS = frozenset({"RandomNormal", "RandomUniform"})
_DRAWN = "__drawn"
"""Ends the name of a tensor within a body."""


def can_wait(node: onnx.NodeProto) -> bool:
    """Return whether ``node`` reads nothing and `make_waiting` knows what to do about it."""
    return node.domain in ("", "ai.onnx") and node.op_type in _OPS


def make_waiting(node: onnx.NodeProto, known: TensorType, condition: str) -> None:
    """Make ``node``, which makes what is ``known``, wait for the true ``condition``, in place.

    The other branch never runs. It makes another shape, so that onnxruntime knows none before the
    run and keeps no dead tensor for this one.
    """
    drawn = onnx.NodeProto()
    drawn.CopyFrom(node)
    empty = TensorType(known.elem_type, (0,) * len(known.shape))
    waiting = onnx.helper.make_node(
        "If",
        [condition],
        node.output,
        name=node.name,
        then_branch=_make_body(drawn, known, f"{node.output[0]}{_DRAWN}"),
        else_branch=_make_body(drawn, empty, f"{node.output[0]}{_DRAWN}_never"),
    )
    waiting.doc_string = node.doc_string
    waiting.metadata_props.extend(node.metadata_props)
    waiting.attribute.extend(a for a in node.attribute if a.name.startswith("__"))
    node.CopyFrom(waiting)


def find_outer(name: str) -> str:
    """Return what a tensor is called outside of the body in which `make_waiting` put its op."""
    return name.removesuffix(_DRAWN)


def _make_body(drawn: onnx.NodeProto, known: TensorType, name: str) -> onnx.GraphProto:
    node = onnx.NodeProto()
    node.CopyFrom(drawn)
    node.name = node.output[0] = name
    for attribute in node.attribute:
        if attribute.name == "shape":
            attribute.ints[:] = known.shape
    made = onnx.helper.make_tensor_value_info(name, known.elem_type, known.shape)
    return onnx.helper.make_graph([node], name, [], [made])
