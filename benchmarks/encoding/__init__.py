"""How fast corpora are encoded, beside the tokenizers library itself."""
