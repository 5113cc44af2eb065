"""What other libraries do with the same quantized weights, for `bench/peers_codes.py`; each in a file of its own."""
