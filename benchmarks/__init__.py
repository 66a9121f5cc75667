"""Measurements beside peers. Results, with the command that made them, are in `results/`."""
