"""Class kernels by LogDet projection (pKNN): array cores."""
