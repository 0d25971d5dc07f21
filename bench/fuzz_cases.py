"""Models and documents, edited or damaged, and the commands that read them. For `bench/fuzz.py`."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import onnx
from hypothesis import HealthCheck, Phase, given, seed, settings

import shared  # noqa: F401
from checkmate.onnxio.dims import find_dims
from edits_nested import edited_models
from fuzz_child import REWRITE, run_here
from fuzz_models import SMALL
from mutations import mutate_bytes, mutate_structure
from mutations_json import mutate_document
from onnx_models import TRAINING_MLP, deep_mlp, residual_mlp

GRAPHS = Path(__file__).parent.parent / "graphs"
HEAD = '<ir_version: 9, opset_import: ["" : 18]>'
CHUNK = 100
"""Models that hypothesis draws at once."""
SHARE_OF_MODELS = 0.85
SHARE_OF_EDITED = 0.8
"""Of the models; the others are damaged."""
AS_IS = ("--optimize", "none", "--no-arena")
FLOPS = ("--costs", "flops")
GREEDY = ("--strategy", "greedy")
CHEAP = tuple(f"--strategy={name}" for name in ("keep-all", "greedy", "chen-sqrt", "revolve"))
QUICK = ("--optimize", "none", "--time-limit=1s")
FENCES = ("--fences=none", "--fences=run", "--fences=all")
MODEL_COMMANDS = (
    *(("solve", "m.onnx", "--budget", f"{n}%", *FLOPS, *GREEDY, *AS_IS) for n in (65, 80, 90)),
    *(("solve", "m.onnx", "--budget", f"{n}%", *FLOPS, *GREEDY, *AS_IS) for n in (95, 98, 100)),
    *(("solve", "m.onnx", "--budget", "99%", *FLOPS, *GREEDY, *AS_IS, f) for f in FENCES),
    *(("solve", "m.onnx", "--budget", f"{n}%", *FLOPS, *GREEDY, *QUICK) for n in (95, 100, 110)),
    ("solve", "m.onnx", "--budget", "100%", *FLOPS, *AS_IS, *QUICK, "--order", "memory"),
    ("solve", "m.onnx", "--budget", "93%", *FLOPS, *QUICK),
    *(("show", "m.onnx"), ("show", "m.onnx", "--json")) * 2,
    ("show", "m.onnx", "--list-dims"),
    *(("export", "m.onnx", "-o", "e.json", *FLOPS, "--optimize", "none"),) * 2,
)
SLOW_COMMANDS = (
    ("solve", "m.onnx", "--budget", "min", *FLOPS, *AS_IS, "--time-limit", "1s", "--json"),
    ("solve", "m.onnx", "--budget", "100%", *FLOPS, *QUICK, "--fences", "all"),
    ("compare", "m.onnx", "--budget", "80%", *FLOPS, *QUICK, *CHEAP),
)
SLOW_SHARE = 0.03
SHARE_OF_REWRITES = 0.4
"""Of the edited models: no command, but a rewriting at random."""
DEFAULT_COMMANDS = (
    ("solve", "m.onnx", "--budget", "100%", "--time-limit", "2s"),
    ("solve", "m.onnx", "--budget", "80%", *FLOPS, "--time-limit", "1s"),
    ("show", "m.onnx", "--shapes-from-run"),
)
"""These start children of onnxruntime, which take most of a second."""
DEFAULT_SHARE = 0.01
DOCUMENT_COMMANDS = {
    "schedule.json": (
        ("check", "m.onnx", "schedule.json"),
        ("check", "problem.json", "schedule.json"),
        ("show", "schedule.json"),
        ("show", "schedule.json", "--model", "m.onnx", "--json"),
    ),
    "problem-schedule.json": (
        ("check", "problem.json", "problem-schedule.json"),
        ("show", "problem-schedule.json", "--model", "problem.json"),
    ),
    "problem.json": (
        ("solve", "problem.json", "--budget", "60%", *GREEDY),
        ("solve", "problem.json", "--budget", "80%", "--time-limit", "1s", "--json"),
        ("compare", "problem.json", "--budget", "70%", *CHEAP, "--time-limit=1s"),
        ("show", "problem.json"),
        ("check", "problem.json", "problem-schedule.json"),
    ),
    "costs.json": (
        ("solve", "m.onnx", "--budget", "60%", "--costs", "costs.json", *GREEDY, *AS_IS),
        ("check", "m.onnx", "schedule.json", "--costs", "costs.json"),
        ("show", "m.onnx", "--costs", "costs.json"),
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A file and the command that reads it."""

    name: str
    content: bytes
    arguments: tuple[str, ...]


def load_seeds() -> tuple[list[bytes], list[bytes]]:
    """Return small valid models and larger ones."""
    texts = [f"{HEAD} {text}" for text in (*SMALL, TRAINING_MLP, deep_mlp(3), residual_mlp(2))]
    small = [onnx.parser.parse_model(text).SerializeToString() for text in texts]
    return small, [path.read_bytes() for path in sorted(GRAPHS.glob("*-tiny-bN.onnx"))]


def make_documents() -> dict[str, bytes]:
    """Return, by name, a valid model and documents about it, made by the commands themselves."""
    proto = onnx.parser.parse_model(f"{HEAD} {TRAINING_MLP}")
    Path("m.onnx").write_bytes(proto.SerializeToString())
    dims = ("--dim", "N=64")
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for arguments in (
            ("solve", "m.onnx", "--budget", "90%", *FLOPS, *AS_IS, *dims, "-o", "schedule.json"),
            ("export", "m.onnx", "-o", "problem.json", *FLOPS, "--optimize", "none", *dims),
            ("profile", "m.onnx", "-o", "costs.json", "--optimize", "none", *dims),
            ("solve", "problem.json", "--budget", "90%", "-o", "problem-schedule.json"),
        ):
            if code := run_here(arguments):
                sys.exit(f"a valid file ended with {code}: {arguments}")
    return {name: Path(name).read_bytes() for name in ("m.onnx", *DOCUMENT_COMMANDS)}


def make_cases(
    key: str, valid: dict[str, bytes], seeds: tuple[list[bytes], list[bytes]]
) -> Iterator[Case]:
    """Yield inputs, each of its own seed; edited models are drawn by hypothesis."""
    small, large = draw_edited(f"{key}-small", seeds[0]), draw_edited(f"{key}-large", seeds[1])
    number = 0
    while True:
        chance = random.Random(f"{key}-{number}")
        name = f"{key}-{number}"
        if chance.random() > SHARE_OF_MODELS:
            yield Case(name, *make_document_case(valid, chance))
        elif chance.random() < SHARE_OF_EDITED:
            proto = next(large if chance.random() < 0.05 else small)
            yield Case(name, proto.SerializeToString(), choose_command(proto, chance))
        else:
            yield Case(name, *make_damaged_case(seeds, chance))
        number += 1


def draw_edited(key: str, seeds: Sequence[bytes]) -> Iterator[onnx.ModelProto]:
    """Yield models that hypothesis edits; the same ``key`` gives the same ones."""
    drawn: list[onnx.ModelProto] = []
    number = 0
    while True:
        unhurried = settings(
            max_examples=CHUNK,
            phases=(Phase.generate,),
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )

        def collect(proto: onnx.ModelProto) -> None:
            drawn.append(proto)

        seed(f"{key}-{number}")(unhurried(given(edited_models(seeds))(collect)))()
        yield from drawn
        drawn.clear()
        number += 1


def make_damaged_case(
    seeds: tuple[list[bytes], list[bytes]], chance: random.Random
) -> tuple[bytes, tuple[str, ...]]:
    """Return a damaged model and a command."""
    content = chance.choice(seeds[chance.random() < 0.1])
    change = mutate_structure if chance.random() < 0.6 else mutate_bytes
    return change(content, chance), choose_command(onnx.ModelProto.FromString(content), chance)


def choose_command(proto: onnx.ModelProto, chance: random.Random) -> tuple[str, ...]:
    """Return a command for ``proto``, with a size for each of its symbolic dimensions."""
    command = chance.choice(MODEL_COMMANDS)
    if chance.random() < DEFAULT_SHARE:
        command = chance.choice(DEFAULT_COMMANDS)
    elif chance.random() < SLOW_SHARE:
        command = chance.choice(SLOW_COMMANDS)
    elif chance.random() < SHARE_OF_REWRITES:
        command = (REWRITE, "m.onnx", str(chance.randrange(2**31)))
    if "--list-dims" in command or chance.random() < 0.03:
        return command
    dims = [f"{name}={chance.choice((1, 3, 64, 64, 64, 300))}" for name in find_dims(proto.graph)]
    return (*command, *(text for dim in dims for text in ("--dim", dim)))


def make_document_case(
    valid: dict[str, bytes], chance: random.Random
) -> tuple[bytes, tuple[str, ...]]:
    """Return a damaged document and a command."""
    name = chance.choice(tuple(DOCUMENT_COMMANDS))
    command = chance.choice(DOCUMENT_COMMANDS[name])
    has_dims = name == "costs.json" and command[0] != "check"
    content = mutate_document(valid[name], chance)
    return content, (*command, *(("--dim", "N=64") if has_dims else ()))
