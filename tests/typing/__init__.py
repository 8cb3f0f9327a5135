"""What the type checker must accept and refuse."""
