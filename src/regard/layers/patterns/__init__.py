"""Sparse attention patterns: which keys a query may attend to."""

from regard.layers.patterns.bigbird import BigBird as BigBird
from regard.layers.patterns.blocks import BlockSparse as BlockSparse
from regard.layers.patterns.longformer import Longformer as Longformer
from regard.layers.patterns.pattern import Pattern as Pattern
from regard.layers.patterns.window import SlidingWindow as SlidingWindow
