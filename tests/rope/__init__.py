"""The ops of the rope family."""
