"""Speed beside a busy process."""
