"""Program modules that tests build."""
