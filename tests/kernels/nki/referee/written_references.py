"""References that tests give as text, or by what they return."""

from pathlib import Path

from accelopt.kernels.nki.referee.reference import Reference

HEAD = "import math\nimport ml_dtypes\nimport numpy as np\n"


def written(folder: Path, text: str) -> Reference:
    path = folder / "reference.py"
    path.write_text(text)
    return Reference(path)


def returning(
    folder: Path, result: str, *lines: str, dtype: str = "np.float32", **shapes: object
) -> Reference:
    """It runs the lines and returns this expression of parameters with these shapes, normal numbers."""
    drawn = ", ".join(f"np.random.normal(size={s}).astype({dtype})" for s in shapes.values())
    body = "\n    ".join([*lines, f"return {result}"])
    forward = f"def forward({', '.join(shapes)}):\n    {body}\n"
    return written(folder, f"{HEAD}def get_inputs():\n    return [{drawn}]\n{forward}")
