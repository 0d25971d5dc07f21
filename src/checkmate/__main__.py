"""``checkmate`` and ``python -m checkmate``."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # an import more is time more in which a Ctrl-C ends in a traceback
    from typing import NoReturn

_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the program.

    Until it is loaded, a Ctrl-C ends it without a word: a traceback of imports helps nobody.
    """
    # A shell's background job ignores Ctrl-C; that stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _quit)
    from checkmate.cli.main import main as run  # noqa: PLC0415

    run()


def _quit(_number: int, _frame: object) -> NoReturn:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
