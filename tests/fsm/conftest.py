import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
HERE = [str(TESTS), str(TESTS / "loop"), str(TESTS / "search"), str(TESTS / "fsm")]
sys.path[:0] = HERE
