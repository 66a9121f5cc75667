"""A model directory put to work."""

from regard.pipeline.decoding import decode as decode
