"""How fast training is, beside peers."""
