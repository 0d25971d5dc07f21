"""The nodes that a fence is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from types import MappingProxyType

import numpy as np
import onnx
from onnx import numpy_helper

from checkmate.onnxio.model import TensorType

PREFIX = "checkmate_fence_"
"""Starts the name of every node of a fence."""

_FIRST_OPSET_OF_INTEGER_MAX = 12
_FIRST_OPSET_OF_SLICED_BY_INPUTS = 10
_FIRST_OPSET_OF_ANSWER = 20
"""IsNaN of bfloat16 has a CPU kernel from there."""


class FenceMaker:
    """Appends the nodes of fences to ``nodes``, to which its owner appends those between them.

    Outputs of fences get no shape in the file: where a shape is known, onnxruntime may fuse what
    has it. ``halves`` are the types of the tensors of half precision.
    """

    def __init__(
        self, taken: set[str], opset: int, halves: Mapping[str, TensorType] | None = None
    ) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._taken = taken
        self._opset = opset
        self._halves = dict(halves or {})
        self._zeros: dict[int, str] = {}
        self._true = ""
        self._place = 0
        self._token = ""
        self._shapes: dict[int, str] = {}
        self._fenced: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        """Per name that was asked for, the last number that was given to it."""

    def start_fence(self, position: int, measured: Sequence[str]) -> None:
        """Begin the fence before ``position`` of the schedule; it waits for ``measured``."""
        self._place = position
        self._shapes = {}
        self._fenced = {}
        self._token = self._join([self.measure(name) for name in measured])

    def fence(self, name: str, rank: int, *, guarded: bool) -> str:
        """Return the tensor ``name`` behind the fence.

        With ``guarded``, a Size reads the tensor too.
        """
        if name not in self._fenced:
            shape = self._make_guarded_shape(name, rank) if guarded else self._make_shape(rank)
            self._fenced[name] = self._add("Reshape", (name, shape), "reshape")
            if name in self._halves:
                self._halves[self._fenced[name]] = self._halves[name]
        return self._fenced[name]

    @property
    def has_fence(self) -> bool:
        """Whether a fence was begun."""
        return bool(self._token)

    def hide(self, name: str, length: int) -> str:
        """Return the vector ``name`` of ``length``, which nobody knows before the fence."""
        return self._add("Add", (name, self._make_shape(length)), "hidden")

    def measure(self, name: str) -> str:
        """Return a number that is known once the tensor ``name`` is made.

        Its size; on the CPU Size has no kernel for half precision, of which nothing is taken and
        asked whether it is a number: between two casts onnxruntime would leave out both.
        """
        if name in self._halves:
            known = self._halves[name]
            taken = self._take_nothing(name) if known.shape else name
            if (
                known.elem_type == onnx.TensorProto.BFLOAT16
                and self._opset < _FIRST_OPSET_OF_ANSWER
            ):
                name = self._add("Cast", (taken,), "cast", {"to": onnx.TensorProto.FLOAT})
            else:
                name = self._add("IsNaN", (taken,), "answer")
        return self._add("Size", (name,), "size")

    def _take_nothing(self, name: str) -> str:
        """Return no elements of the tensor ``name``, which has a dimension."""
        if self._opset < _FIRST_OPSET_OF_SLICED_BY_INPUTS:
            return self._add("Slice", (name,), "slice", {"starts": [0], "ends": [0]})
        zeros = self._find_zeros(1)
        return self._add("Slice", (name, zeros, zeros), "slice")

    def _make_shape(self, rank: int) -> str:
        if rank not in self._shapes:
            self._shapes[rank] = self._multiply(self._token, rank)
        return self._shapes[rank]

    def _make_guarded_shape(self, name: str, rank: int) -> str:
        return self._multiply(self._join([self._token, self.measure(name)]), rank)

    def _multiply(self, token: str, rank: int) -> str:
        return self._add("Mul", (token, self._find_zeros(rank)), "shape")

    def _join(self, sizes: Sequence[str]) -> str:
        """Return a number that depends on all ``sizes``."""
        if len(sizes) > 1 and self._opset >= _FIRST_OPSET_OF_INTEGER_MAX:
            return self._add("Max", sizes, "token")
        token = sizes[0]
        for size in sizes[1:]:
            token = self._add("Add", (token, size), "token")
        return token

    def find_true(self) -> str:
        """Return a constant that is true."""
        if not self._true:
            self._true = self._add_constant("true", np.array(True))
        return self._true

    def _find_zeros(self, rank: int) -> str:
        if rank not in self._zeros:
            self._zeros[rank] = self._add_constant(f"zeros_{rank}", np.zeros(rank, np.int64))
        return self._zeros[rank]

    def _add_constant(self, role: str, value: np.ndarray) -> str:
        name = self._reserve(f"{PREFIX}{role}")
        tensor = numpy_helper.from_array(value)
        node = onnx.helper.make_node("Constant", (), (name,), name=name, value=tensor)
        self.nodes.append(node)
        return name

    def _add(
        self,
        op_type: str,
        inputs: Sequence[str],
        role: str,
        attributes: Mapping[str, int | list[int]] = MappingProxyType({}),
    ) -> str:
        name = self._reserve(f"{PREFIX}{self._place}_{role}")
        node = onnx.helper.make_node(op_type, inputs, (name,), name=name)
        made = starmap(onnx.helper.make_attribute, attributes.items())
        node.attribute.extend(made)
        self.nodes.append(node)
        return name

    def _reserve(self, name: str) -> str:
        number = self._numbers.get(name, 0) + 1
        chosen = f"{name}_{number}" if number > 1 else name
        while chosen in self._taken:
            number += 1
            chosen = f"{name}_{number}"
        self._numbers[name] = number
        self._taken.add(chosen)
        return chosen
