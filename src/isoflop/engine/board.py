"""What the user sees of runs that go on side by side."""

from __future__ import annotations

import re

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

STARTED = re.compile(r"Running stage '([^']+)'")
# What DVC says that is of no use in the middle of a study.
NOISE = re.compile(r"\s*$|> |Stage '.*skipping|(Updating|Generating) lock file|Use `dvc push`|\s*git add|To track")


class Board:
    """Every line with the stage that it is from, and on a terminal a line of progress below."""

    def __init__(self, total: int) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("{task.completed} of {task.total} runs"),
            BarColumn(20),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("", total=total)
        self.at: dict[str, str] = {}  # chain: the stage that it is at

    def line(self, chain: str, text: str) -> None:
        """Show a line of a chain, or take note of the stage that it announces."""
        if started := STARTED.match(text):
            self.at[chain] = started[1]
            self._describe()
        elif not NOISE.match(text):
            self.console.print(f"{self.at.get(chain, chain)} | {text}", markup=False)

    def ended(self, chain: str, status: int) -> None:
        """One chain less."""
        stage = self.at.pop(chain, chain)
        self.progress.advance(self.task)
        self._describe()
        if status:
            self.console.print(f"{stage} | failed with exit status {status}; the other runs go on", markup=False)

    def _describe(self) -> None:
        self.progress.update(self.task, description=", ".join(list(self.at.values())))
