"""Attention over long sequences: time and memory of every pattern and kind, beside exact attention and peers."""
