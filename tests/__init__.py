"""The tests of this repository, by area."""
