"""What `python -m tileops` does: looking at an installation, and saying what would serve a call."""
