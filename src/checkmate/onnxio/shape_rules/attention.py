"""Attention and what goes with it, as onnxruntime fuses it."""

from __future__ import annotations

from collections.abc import Mapping

from checkmate.onnxio.model import TensorType
from checkmate.onnxio.shape_rules.call import Call, Made, Rule, like


def _attend(call: Call) -> Made:
    """Return what Attention makes; its weights are those of queries, keys and values in a row."""
    data, weights = call.read(0), call.read(1)
    sizes = call.integers("qkv_hidden_sizes")
    n_hidden = sizes[2] if len(sizes) == 3 else weights.shape[1] // 3
    batch, length = data.shape[0], data.shape[1]
    made = TensorType(data.elem_type, (batch, length, n_hidden))
    n_past = call.read(4).shape[3] if call.has(4) else 0
    n_heads = max(1, call.integer("num_heads", 1))
    present = (2, batch, n_heads, n_past + length, n_hidden // n_heads)
    return made, TensorType(data.elem_type, present)


def _attend_with_heads(call: Call) -> Made:
    """Return what is attended to, and keys and values with those of the past.

    Queries are (batch, length, hidden), or packed with keys and values in five axes.
    """
    query = call.read(0)
    n_heads = max(1, call.integer("num_heads", 1))
    batch, length = query.shape[0], query.shape[1]
    size, n_keys = _find_values(call, n_heads)
    made = TensorType(query.elem_type, (batch, length, size * n_heads))
    n_past = call.read(6).shape[2] if call.has(6) else 0
    width = query.shape[-1] if len(query.shape) == 5 else query.shape[-1] // n_heads
    keys = TensorType(query.elem_type, (batch, n_heads, n_past + n_keys, width))
    values = TensorType(query.elem_type, (batch, n_heads, n_past + n_keys, size))
    return made, keys, values


def _find_values(call: Call, n_heads: int) -> tuple[int, int]:
    """Return the size of a head's values, and how many keys there are."""
    if call.has(2):
        shape = call.read(2).shape
        # Three axes: (batch, keys, hidden); four: (batch, heads, keys, size).
        return (shape[3], shape[2]) if len(shape) == 4 else (shape[2] // n_heads, shape[1])
    packed = call.read(1 if call.has(1) else 0).shape
    return packed[-1], packed[1]


RULES: Mapping[str, Rule] = {
    "Attention": _attend,
    "GemmaRotaryEmbedding": like(1, 1),
    "MultiHeadAttention": _attend_with_heads,
    "RotaryEmbedding": like(0),
}
"""Of the com.microsoft domain."""
