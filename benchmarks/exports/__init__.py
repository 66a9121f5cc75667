"""Whether the model of the package does in other runtimes what it does here."""
