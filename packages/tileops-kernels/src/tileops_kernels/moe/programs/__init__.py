"""TileLang builders of the moe family."""
