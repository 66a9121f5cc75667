"""The model in the package, de-en: what it is trained on, and what it is scored on beside its own test set."""
