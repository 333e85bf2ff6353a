"""Load NumPyro whole before any of its submodules.

ArviZ puts a lazy stand-in for ``numpyro`` into ``sys.modules``. Importing a submodule through it runs
``numpyro.distributions`` twice, and the second copy lacks the attribute ``distribution`` that
``numpyro.factor`` reads. Touching any attribute first resolves the stand-in in one piece.
"""

import numpyro

NUMPYRO_VERSION: str = numpyro.__version__
