"""TileLang builders of the rope family."""
