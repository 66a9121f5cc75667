"""Decoding with a model: the choice of a decoder, big jobs."""
