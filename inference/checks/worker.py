"""The second process of a check: it does the tasks whose numbers it reads, one line of JSON each."""

import json
import os
import sys
from typing import Any

import jax

from labelzoo.check_process import ANSWER


def main(request: str) -> None:
    """Serve the tasks of ``{"model", "seed", "tier", "states", "progress"}`` until stdin ends."""
    from labelzoo.inference.checks.ladder import make_plan
    from labelzoo.inference.checks.tasks import rows_to_json

    # What a user's file prints must not mix with the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    wanted: dict[str, Any] = json.loads(request)
    plan = make_plan(
        wanted["model"], None, *(wanted[name] for name in ("seed", "tier", "states", "progress"))
    )
    for line in sys.stdin:
        with jax.enable_x64(True):
            answers.write(ANSWER + rows_to_json(plan.tasks[int(line)].run()) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
