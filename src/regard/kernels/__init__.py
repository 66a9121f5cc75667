"""C++ kernels and their bindings. They are optional: everything also works without them."""
