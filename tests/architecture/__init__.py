"""What must hold of the sources as a whole: sizes, docstrings, names, and who may import what."""
