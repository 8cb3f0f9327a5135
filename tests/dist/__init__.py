"""The wheels, built and used outside this tree."""
