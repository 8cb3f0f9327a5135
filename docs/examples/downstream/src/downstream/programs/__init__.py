"""TileLang programs of this project; nothing imports them before the first build."""
