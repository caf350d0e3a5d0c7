"""Entry points of the pipeline, one module per DVC stage: parse, build, call, write."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import isoflop
from isoflop.errors import IsoflopError
from isoflop.files import disk_errors


def run(main: Callable[[], None]) -> None:
    """Run a stage's `main`; print the user's mistakes without a traceback and exit 1."""
    try:
        refuse_foreign_code()
        with disk_errors(Path.cwd()):
            main()
    except IsoflopError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def refuse_foreign_code() -> None:
    """Fail where another checkout's code would run: an experiment in a copy must use the copy's code."""
    code = Path(isoflop.__file__).resolve()
    here = Path.cwd().resolve()
    if not code.is_relative_to(here):
        raise IsoflopError(
            f"isoflop is imported from {code.parent}, outside the working directory {here}: "
            "run the stage from the repository's root with PYTHONPATH=src"
        )
