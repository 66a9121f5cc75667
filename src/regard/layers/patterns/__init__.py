"""Sparse attention patterns: which keys a query may attend to."""

from regard.layers.patterns.pattern import Pattern as Pattern
from regard.layers.patterns.window import SlidingWindow as SlidingWindow
