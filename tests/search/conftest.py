import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
BENCHMARKS = TESTS.parent / "benchmarks"
sys.path[:0] = [str(TESTS), str(TESTS / "loop"), str(TESTS / "search"), str(BENCHMARKS)]
