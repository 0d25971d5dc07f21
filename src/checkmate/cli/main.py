"""The program: finds the command, runs it, turns an error into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from typing import NoReturn

import click

from checkmate import __version__
from checkmate.cli.terminal import escape, escape_lines
from checkmate.errors import CheckmateError, OutputError

_COMMANDS = {
    "check": "Certify a schedule against its model; with --run, run both graphs.",
    "compare": "Find a schedule by each strategy; print them side by side.",
    "export": "Write a model's graph, sizes and costs as a problem file.",
    "profile": "Measure what each op of a model costs.",
    "show": "Print what a model or a schedule holds.",
    "solve": "Find the cheapest schedule that fits a memory budget.",
}
"""Per command, in the module of its name: its one line of help."""


class _LazyGroup(click.Group):
    """Imports a command's module only when the command is used, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name) if cmd_name in _COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="checkmate")
def program() -> None:
    """Fit ONNX training graphs into a memory budget, with proof.

    Exit codes: 0 done; 2 usage; 3 a file cannot be read, understood or written; 4 proved that
    no schedule fits; 5 nothing found and nothing proved; 6 solver, device or runtime failed;
    7 check failed; 130 interrupted; 1 a bug in checkmate.
    """


def main() -> NoReturn:
    """Run the program and end it with the exit code that the result has."""
    signal.signal(signal.SIGTERM, _terminate)
    arguments = sys.argv[1:]
    if arguments and arguments[0] in _COMMANDS:
        _load(arguments[0])
    # From here on a Ctrl-C is an exception: a search that meets it returns what it has.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(_run(arguments))


def _load(name: str) -> click.Command:
    command = importlib.import_module(f"checkmate.cli.{name}").command
    assert isinstance(command, click.Command)
    return command


def _terminate(number: int, _: object) -> NoReturn:
    """End by an exception, so that temporary files and child processes go too."""
    sys.exit(128 + number)


def _run(arguments: list[str]) -> int:
    """Run the command; return the exit code, having said what went wrong."""
    try:
        with program.make_context("checkmate", arguments) as context:
            program.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except BaseException as error:  # the last line of defence
        return _explain(error)
    return 0


def _explain(error: BaseException) -> int:
    """Say what ended the program and return its exit code."""
    code, message, hint = 1, f"bug in checkmate {__version__}: {error!r}", "please report it"
    if isinstance(error, CheckmateError):
        code, message, hint = error.exit_code, error.message, error.hint or ""
    elif isinstance(error, click.ClickException):
        code, message, hint = 2, error.format_message(), _find_help(error)
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        code, message, hint = 130, "interrupted", ""
    elif isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    elif isinstance(error, BrokenPipeError):
        # Whoever read our output has seen enough; Python would complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    elif isinstance(error, OSError):
        code, hint = OutputError.exit_code, ""
        message = f"{error.filename or 'standard output'}: {error.strerror}"
    else:
        click.echo(escape_lines("".join(traceback.format_exception(error)).rstrip()), err=True)
    _complain(message, hint)
    return code


def _find_help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "" if context is None else f"see `{context.command_path} --help`"


def _complain(message: str, hint: str) -> None:
    click.echo(escape(f"error: {' '.join(message.split())}"), err=True)
    if hint:
        click.echo(escape(f"hint: {' '.join(hint.split())}"), err=True)
