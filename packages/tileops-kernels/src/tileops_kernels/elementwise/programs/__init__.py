"""TileLang builders of the elementwise family."""
