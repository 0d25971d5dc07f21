"""Which ops cost the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checkmate.onnxio.read import read_model
from checkmate.profiler.signature import Signature, sign
from checkmate.profiler.surroundings import survey
from onnx_models import save

BASE = "(float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { y = Add(x, z) }"


def sign_last(folder: Path, body: str, *, opset: int = 18) -> Signature:
    model = read_model(save(folder, f"g {body}", opset=opset), {})
    return sign(model.nodes[-1], survey(model))


SAME = {
    "other names": "(float[2, 3] p, float[2, 3] q) => (float[2, 3] r) { [named] r = Add(p, q) }",
    "after another op": "(float[2, 3] x, float[2, 3] z) => (float[2, 3] y)"
    "{ a = Exp(x) y = Add(a, z) }",
    "an attribute that means nothing": "(float[2, 3] x, float[2, 3] z) => (float[2, 3] y)"
    '{ y = Add <__copy = "1"> (x, z) }',
}

OTHER = {
    "operator": "(float[2, 3] x, float[2, 3] z) => (float[2, 3] y) { y = Sub(x, z) }",
    "shape": "(float[2, 4] x, float[2, 4] z) => (float[2, 4] y) { y = Add(x, z) }",
    "broadcast": "(float[2, 3] x, float[3] z) => (float[2, 3] y) { y = Add(x, z) }",
    "type": "(double[2, 3] x, double[2, 3] z) => (double[2, 3] y) { y = Add(x, z) }",
    "one tensor twice": "(float[2, 3] x) => (float[2, 3] y) { y = Add(x, x) }",
    "weight": "(float[2, 3] x) => (float[2, 3] y) <float[2, 3] z = {1, 2, 3, 4, 5, 6}>"
    "{ y = Add(x, z) }",
}


@pytest.mark.parametrize("body", SAME.values(), ids=SAME)
def test_what_does_not_change_the_cost_is_left_out(body: str, tmp_path: Path) -> None:
    assert sign_last(tmp_path, body) == sign_last(tmp_path, BASE)


@pytest.mark.parametrize("body", OTHER.values(), ids=OTHER)
def test_what_changes_the_cost_is_held(body: str, tmp_path: Path) -> None:
    assert sign_last(tmp_path, body).key != sign_last(tmp_path, BASE).key


def test_the_version_of_the_operator_set_is_held(tmp_path: Path) -> None:
    assert sign_last(tmp_path, BASE, opset=17) != sign_last(tmp_path, BASE)


@pytest.mark.parametrize("axes", [("0", "1"), ("1", "-1")])
def test_attributes_are_held(axes: tuple[str, str], tmp_path: Path) -> None:
    body = "(float[3, 3] x) => (float[3, 3] y) {{ y = Softmax <axis = {}> (x) }}"
    first, second = (sign_last(tmp_path, body.format(axis)) for axis in axes)
    assert first != second


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("(float[8] x) => (float[8] y) <float e = {{{}}}> {{ y = Pow(x, e) }}", ("2", "3")),
        (
            "(float[2, 2, 2] x) => (float[2, 4] y) <int64[2] s = {{{}}}> {{ y = Reshape(x, s) }}",
            ("2, 4", "2, -1"),
        ),
    ],
)
def test_values_that_steer_an_op_are_held(
    body: str, values: tuple[str, str], tmp_path: Path
) -> None:
    first, second = (sign_last(tmp_path, body.format(value)) for value in values)
    assert first != second


def test_a_view_is_not_the_copy_that_a_graph_output_is(tmp_path: Path) -> None:
    body = "v (float[2, 3] x) => (float[6] z) <int64[1] s = {6}> { y = Reshape(x, s) z = Exp(y) }"
    model = read_model(save(tmp_path, body), {})
    view = sign(model.nodes[0], survey(model))
    assert view != sign(model.nodes[0], replace(survey(model), outputs=frozenset({"y"})))


def test_the_values_of_weights_are_not_held(tmp_path: Path) -> None:
    body = "(float[3] x) => (float[3] y) <float[3] w = {{{}}}> {{ y = Add(x, w) }}"
    first, second = (sign_last(tmp_path, body.format(w)) for w in ("1, 2, 3", "4, 5, 6"))
    assert first == second


def test_which_outputs_exist_is_held(tmp_path: Path) -> None:
    pool = "MaxPool <kernel_shape = [2]> (x)"
    first = sign_last(tmp_path, f"(float[1, 1, 4] x) => (float[1, 1, 3] y) {{ y = {pool} }}")
    second = sign_last(
        tmp_path,
        f"(float[1, 1, 4] x) => (float[1, 1, 3] y, int64[1, 1, 3] i) {{ y, i = {pool} }}",
    )
    assert first != second


def test_the_key_of_a_signature_never_changes(tmp_path: Path) -> None:
    # Another key would make every cached cost unknown without saying so.
    body = "(float[2, 3] x) => (float[6] y) <int64[1] s = {6}> { y = Reshape(x, s) }"
    assert sign_last(tmp_path, body).text == (
        '{"attributes":[],"domain":"","inputs":[[1,[2,3],"given",0],[7,[1],"value",[6]]],'
        '"op":"Reshape","outputs":[[1,[6]]],"version":18}'
    )
