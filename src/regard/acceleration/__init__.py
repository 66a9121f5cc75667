"""The same functions, computed by kernels."""
