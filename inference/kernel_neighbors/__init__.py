"""Class kernels by LogDet projection: engines, and array cores."""

from labelzoo.inference.kernel_neighbors.answers import classified
from labelzoo.inference.kernel_neighbors.engines import ENGINES
from labelzoo.inference.kernel_neighbors.judges import judges
from labelzoo.models.kernel_neighbors_card import spec as card
from labelzoo.models.registry import register

__all__ = ["classified", "spec"]

spec = register(card, engines=[*judges(card), *ENGINES])
