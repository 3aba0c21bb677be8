"""Says where the demo is."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Stages:
    """Says where the demo is: on a terminal a bar for each stage; elsewhere a line when one begins, and when it ends.

    Args:
        console: where.
    """

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self._console = console
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, title: str, total: float) -> TaskID:
        """Begin a stage, and return what names it; ``total`` is what ``done`` will be at its end."""
        self._line(f"{title}: begins")
        return self._progress.add_task(title, total=total, said="starting")

    def show(self, stage: TaskID, done: float, said: str) -> None:
        """Show how far it is."""
        self._progress.update(stage, completed=done, said=said)

    def end(self, stage: TaskID, done: float, said: str) -> None:
        """End it."""
        self.show(stage, done, said)
        self._line(f"{self._progress.tasks[stage].description}: {said}")

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
