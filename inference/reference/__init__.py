"""Reference engines: NUTS and SVI, which run any model's summed view as it stands."""

from labelzoo.inference.engine import Engine
from labelzoo.inference.reference.khat import guide_log_weights, psis_khat
from labelzoo.inference.reference.nuts import NUTS_OPTIONS, build_kernel, run_nuts
from labelzoo.inference.reference.svi import SVI_OPTIONS, run_svi
from labelzoo.models.spec import ModelSpec

__all__ = [
    "NUTS_OPTIONS",
    "SVI_OPTIONS",
    "guide_log_weights",
    "psis_khat",
    "reference_engines",
    "run_nuts",
    "run_svi",
]


def reference_engines(spec: ModelSpec) -> tuple[Engine, Engine]:
    """Return the engines ``nuts`` and ``svi`` of a model; they need nothing but its ``summed`` view.

    Parameters
    ----------
    spec : ModelSpec
        Where its ``dims`` name sites, only those are kept in the posterior, so that auxiliary variables
        (non-centred ones, say) are not.

    Returns
    -------
    tuple of Engine
        Their ``random_sites`` are the sites of ``spec.dims``, the best guess before any data is seen; each
        run writes the sites that were random in it into the posterior's attributes.
    """
    nuts = Engine(
        "nuts",
        "mcmc",
        run_nuts,
        random_sites=tuple(spec.dims),
        options=NUTS_OPTIONS,
        description="NumPyro's NUTS on the summed view: slow and trusted, the judge of the others.",
        kernel=build_kernel,
    )
    svi = Engine(
        "svi",
        "bound",
        run_svi,
        random_sites=tuple(spec.dims),
        options=SVI_OPTIONS,
        description="NumPyro's SVI on the summed view: an automatic guide fitted by Adam, judged by k-hat.",
    )
    return nuts, svi
