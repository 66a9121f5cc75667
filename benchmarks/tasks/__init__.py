"""Tasks: summarization, question answering, code translation, classification and language modeling."""
