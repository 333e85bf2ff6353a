"""What is believed: one generative NumPyro program a file, and its card. No inference here."""

from labelzoo.whole_numpyro import NUMPYRO_VERSION as NUMPYRO_VERSION
