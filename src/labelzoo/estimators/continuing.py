"""What `partial_fit` may not change between its calls."""

from collections.abc import Mapping
from typing import Any


def refuse_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a posterior under another model, engine or setting than it was begun with.

    Raises
    ------
    ValueError
        Naming the first that differs; a setting that was not given counts as None.
    """
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        # Settings may be arrays, which have no one truth value: what they look like is compared.
        if repr(old) != repr(new):
            raise ValueError(
                f"partial_fit continues the posterior of {name} {old!r}, but {name} is now {new!r}: "
                "call fit, or start from clone(classifier)"
            )
