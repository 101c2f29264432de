"""HyperTransformer: a Transformer reads a support set and writes the weights of a small CNN.

Environment defaults that TensorFlow reads while it is imported are set here, before any module of
the package imports it. Values that the user has set are kept.
"""

import os

# oneDNN is off by default on processors without AVX-512, but there, too, it is faster for the small
# convolutions of generated CNNs (compare: TF_ENABLE_ONEDNN_OPTS=0 python scripts/benchmark.py).
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# When a worker of several is lost, TensorFlow writes pages of errors; the programs say it in one line.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if os.environ.get("TF_CONFIG") else "2")

__version__ = "0.1.1"
