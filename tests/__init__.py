"""The tests lie as what they test does; what several of them need lies beside them."""

from pathlib import Path

ROOT = Path(__file__).parent.parent  # of the repository
