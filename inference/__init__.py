"""How it is computed: hand-derived updates, reference engines, checks and the comparison."""

from labelzoo.whole_numpyro import NUMPYRO_VERSION as NUMPYRO_VERSION
