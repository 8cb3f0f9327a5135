"""TileLang steps that families share; imported by program modules only."""
