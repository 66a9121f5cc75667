"""How fast translating is, beside peers."""
