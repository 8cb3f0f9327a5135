"""TileLang programs of the reduction family."""
