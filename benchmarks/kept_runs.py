"""Results of single runs in files, so that an interrupted benchmark goes on where it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labelzoo.whole_file import whole_file


def kept(
    path: Path, make: Callable[[], dict[str, Any]], whole: Callable[[dict[str, Any]], bool] = bool
) -> dict[str, Any]:
    """Return what `path` holds if it is `whole`, else what `make` gives, written there first.

    Parameters
    ----------
    path : Path
        JSON file; it is written whole or not at all.
    make : callable
        Makes the run.
    whole : callable
        Says whether a stored run has all that is asked for; by default, whether it is not empty.
    """
    if path.is_file():
        found = json.loads(path.read_text(encoding="utf-8"))
        if whole(found):
            return found
    found = make()
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(found), encoding="utf-8")
    return found
