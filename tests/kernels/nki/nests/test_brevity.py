"""Kernels in fewer words: results as tiles, bodies whose names alone differ, statements on few lines."""

import pytest

from accelopt.kernels.nki.nests.axis_positions import FreeNames
from accelopt.kernels.nki.nests.loop_rerolling import folded, rerolled
from accelopt.kernels.nki.nests.rendering import rendered
from accelopt.kernels.nki.nests.statements import Comment, Form, Line, NestNode, line
from accelopt.kernels.nki.nests.wrapping import compact


def declared(name: str, width: int | str = 8, dtype: str = "float32", buffer: str = "sbuf") -> str:
    """The declaration of a tile (neuronxcc)."""
    return f"{name} = nl.ndarray((nl.par_dim(128), {width}), dtype=nl.{dtype}, buffer=nl.{buffer})"


@pytest.mark.parametrize(
    ("declaration", "statement", "made"),
    [
        (declared("y"), "y[...] = nisa.reciprocal(data=x[0:128, 0:8])", "y = nisa.reciprocal(data=x)"),
        (declared("y", dtype="bfloat16"), "y[...] = nisa.reciprocal(data=x[...])", ""),  # another format
        (declared("y", dtype="bfloat16"), "y[...] = nisa.reciprocal(data=x[...], dtype=nl.bfloat16)",
         "y = nisa.reciprocal(data=x, dtype=nl.bfloat16)"),
        (declared("y", buffer="psum"), "y[...] = nisa.reciprocal(data=x[...])", ""),  # another memory
        (declared("y", buffer="psum"), "y[...] += nisa.nc_matmul(x[...], x[...])", "y = nisa.nc_matmul(x, x)"),
        (declared("y"), "y[...] = nisa.reciprocal(data=x[i_p, i_x * 2 + i_y])", ""),  # of three axes
        (declared("y"), "y[0:128, 0:4] = nisa.reciprocal(data=x[0:128, 0:4])", ""),
        (declared("y"), "for i in nl.affine_range(4):\n    y[...] = nisa.reciprocal(data=x[...])", ""),
    ],
)  # fmt: skip
def test_a_tile_that_one_instruction_makes_is_not_declared(
    declaration: str, statement: str, made: str
) -> None:
    text = [declared("x"), "nisa.dma_copy(dst=x[...], src=a[:, :])", declaration, statement,
            "nisa.dma_copy(dst=b[:, :], src=y[...])"]  # fmt: skip
    lines = [text[4:] for text in rendered([*map(line, text)])]
    assert lines[:2] == [declared("x"), "nisa.dma_copy(dst=x, src=a[:, :])"]
    assert lines[-1] == "nisa.dma_copy(dst=b[:, :], src=y)"
    assert lines[2:-1] == [made] if made else lines[2] == declaration


def test_stages_that_differ_in_names_alone_are_written_once() -> None:
    """Also where lines of one may run on other engines: then on those that they run on anyway."""
    nodes: list[NestNode] = []
    for source, result in (("u", "first"), ("first", "second"), ("second", "third")):
        scalar = Form(
            f"nisa.activation(dst={result}_to, op=nl.exp, data={result}_of)", "scalar", 1.0
        )
        vector = Form("nisa.other()", "vector", 99.0)
        forms = [Form(declared(f"{result}_to"), "none", 0.0), Form(declared(f"{result}_of"), "none", 0.0),
                 Form(f"nisa.dma_copy(dst={result}_of, src={source})", "dma", 1.0),
                 Form(f"nisa.dma_copy(dst={result}, src={result}_to)", "dma", 1.0)]  # fmt: skip
        lines = [Line((form,)) for form in forms]
        lines.insert(3, Line((scalar, vector) if source == "u" else (scalar,)))
        nodes += [Comment(f"{result}."), *lines]
    assert len(rendered(folded(nodes, FreeNames(set())))) == 18
    text = "\n".join(rendered(rerolled(nodes, FreeNames(set()))))
    assert "in ((u, first), (first, second), (second, third)):" in text
    assert text.count("nisa.activation") == 1 and "# first, second, third." in text


def test_steps_that_take_each_others_tiles_are_written_once() -> None:
    """Also where they differ in positions; numbers that follow from others are said by those."""
    nodes = [line(f"i_p_{n}, i_x_{n} = nl.mgrid[0:128, 0:{8 - n}]") for n in (1, 2, 4)]
    for source, n in (("u", 1), ("t1", 2), ("t2", 4)):
        nodes += [line(declared(f"t{n}")), line(declared(f"copy{n}", width=2 * (8 - n)))]
        nodes += [
            line(
                f"nisa.activation(dst=copy{n}[i_p_{n}, i_x_{n}], op=nl.copy, data={source}[i_p_{n}, i_x_{n} + {n}])"
            )
        ]
        nodes += [
            line(
                f"nisa.tensor_tensor(dst=t{n}[i_p_{n}, i_x_{n}], data1={source}, data2=copy{n}, op=nl.add)"
            )
        ]
    done = rendered(rerolled([*nodes, line("nisa.dma_copy(dst=out, src=t4)")], FreeNames({"t4"})))
    assert [text.strip() for text in done[3:]] == [
        "for size_here, u_here, t1_here in ((7, u, t1), (6, t1, t2), (4, t2, t4)):",
        "i_p_1, i_x_1 = nl.mgrid[0:128, 0:size_here]",
        declared("copy1", width="size_here * 2"),
        "nisa.activation(dst=copy1[i_p_1, i_x_1], op=nl.copy, data=u_here[i_p_1, i_x_1 + 8 - size_here])",
        "nisa.tensor_tensor(dst=t1_here[i_p_1, i_x_1], data1=u_here, data2=copy1, op=nl.add)",
        "nisa.dma_copy(dst=out, src=t4)",
    ]
    assert [text.split()[0] for text in done[:3]] == ["t1", "t2", "t4"]


def test_compact_statements_stand_on_few_lines() -> None:
    call = "    y = nisa.tensor_tensor(data1=one_of_both, data2=other_of_both, op=nl.multiply, dtype=nl.bfloat16)"
    assert compact(call, 110) == [call]
    assert compact(call, 100) == [
        "    y = nisa.tensor_tensor(data1=one_of_both, data2=other_of_both, op=nl.multiply,",
        "                           dtype=nl.bfloat16)",
    ]
