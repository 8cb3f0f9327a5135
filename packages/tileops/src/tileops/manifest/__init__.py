"""The manifest: the language of entries, the registry, and what is generated from an entry."""
