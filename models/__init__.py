"""What is believed: one generative NumPyro program a file, and its card. No inference here."""
