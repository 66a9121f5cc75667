"""Before and after a change, in one run."""
