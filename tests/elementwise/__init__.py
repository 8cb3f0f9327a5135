"""The ops of the elementwise family."""
