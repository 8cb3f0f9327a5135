"""TileLang builders of the norm family."""
