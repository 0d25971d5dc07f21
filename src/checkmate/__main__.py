"""``python -m checkmate``."""

from checkmate.cli.main import main

main()
