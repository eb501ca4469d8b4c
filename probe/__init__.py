"""Which layers of a frozen BERT should I use as features? An experiment harness for layer-selection probing."""

__version__ = "0.1.0"
