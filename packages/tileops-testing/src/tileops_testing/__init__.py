"""The testing kit of TileOPs: references, cases, numerics, the suites, benchmarks and a pytest plugin."""
