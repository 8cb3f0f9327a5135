"""The documentation: its code runs, and its links lead somewhere."""
