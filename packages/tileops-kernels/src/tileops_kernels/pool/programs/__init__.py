"""TileLang builders of the pool family."""
