"""Kernels in C++, and their bindings. Nothing but speed depends on them."""
