"""A second process for `labelzoo check`: started before anything heavy is imported, asked task by task."""

import json
import subprocess
import sys
from typing import Any

ANSWER = "labelzoo-rows "
"""What a line of answers starts with."""


class Worker:
    """A process that does tasks of one model's check.

    Parameters
    ----------
    model : str
        Registry name or ``path/to/file.py:spec``.
    seed, tier, states, progress
        As in `labelzoo.check`.
    """

    def __init__(self, model: str, *, seed: int, tier: str, states: int = 16, progress: bool = False) -> None:
        request: dict[str, Any] = {
            "model": model,
            "seed": seed,
            "tier": tier,
            "states": states,
            "progress": progress,
        }
        command = [sys.executable, "-m", "labelzoo.inference.checks.worker", json.dumps(request)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if progress else subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def ask(self, index: int) -> str | None:
        """Return the rows of one task as JSON, None if the process has gone."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{index}\n")
            self._process.stdin.flush()
        except OSError:
            return None
        for line in self._process.stdout:
            if line.startswith(ANSWER) and line.endswith("\n"):
                return line[len(ANSWER) :]
        return None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
