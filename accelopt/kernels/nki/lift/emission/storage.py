"""The tiles of a lowered kernel: which there are, how they are named, and whether they fit."""

from __future__ import annotations

from accelopt.hardware import Hardware
from accelopt.kernels.nki.lift.emission.graph import Graph, GraphValue
from accelopt.kernels.nki.lift.emission.nest import NestNode, largest_divisor, line
from accelopt.kernels.nki.lift.emission.phases import Placed, Roles
from accelopt.kernels.nki.lift.emission.tile_names import word_of
from accelopt.kernels.nki.lift.emission.value_locations import FreeNames, Tile
from accelopt.kernels.nki.lift.schedule import ResourceShort

PARTITIONS = 128


def itemsize(dtype: str) -> int:
    """Bytes of an element of a format that is lowered."""
    return 4 if dtype == "float32" else 2


class TileStorage:
    """Names and sizes. `ResourceShort` where tiles take more of a partition than SBUF has."""

    def __init__(self, graph: Graph, roles: Roles, spec: Hardware) -> None:
        views = {f"{name}_view" for name in graph.results}
        loops = {axis.name for value in graph.values for axis in value.axes}
        self.names = FreeNames({*graph.arrays, *views, *loops})
        self.graph = graph
        self.roles = roles
        self.spec = spec
        self.bytes: dict[str, int] = {}
        self._outputs = {output.value: output.array for output in graph.outputs}

    def name(self, value: GraphValue, suffix: str = "") -> str:
        """A name for a tile of a value."""
        word = word_of(value, self._outputs)
        if not suffix and (value in self._outputs or value.kind == "input"):
            suffix = "_tile"
        return self.names.new(word + suffix)

    def word(self, value: GraphValue) -> str:
        """What a value is called, in names of other tiles."""
        return word_of(value, self._outputs)

    def sums(self, product: GraphValue) -> str:
        """A name for the sums of a product in PSUM."""
        return self.names.new(word_of(product, {}).replace("_product", "_sums"))

    def declare(
        self,
        body: list[NestNode],
        name: str,
        shape: tuple[int, ...],
        buffers: int = 1,
        dtype: str = "float32",
    ) -> None:
        """A tile in SBUF, of which so many lie there at a time."""
        sizes = ", ".join(map(str, shape[1:]))
        body.append(
            line(f"{name} = nl.ndarray((nl.par_dim({shape[0]}), {sizes}), dtype=nl.{dtype})")
        )
        self.count(name, shape[1:], buffers, dtype)

    def count(
        self, name: str, free: tuple[int, ...], buffers: int = 1, dtype: str = "float32"
    ) -> None:
        """Counts a tile that an instruction makes."""
        size = itemsize(dtype) * buffers
        for extent in free:
            size *= extent
        self.bytes[name] = size

    def check(self, resident: int) -> bool:
        """Raises ResourceShort where everything together does not fit; true where all but the
        `resident` bytes fit twice."""
        needed = sum(self.bytes.values())
        if needed > self.spec.sbuf_usable_bytes:
            largest = max(self.bytes, key=lambda name: self.bytes[name])
            raise ResourceShort(
                "bytes of SBUF a partition", needed, self.spec.sbuf_usable_bytes,
                f"everything that is kept ({largest}: {self.bytes[largest]})",
            )  # fmt: skip
        return 2 * needed - resident <= self.spec.sbuf_usable_bytes


class Tiling:
    """How axes are cut: `rows` rows from `first` into tiles and blocks, feature axes into chunks of
    partitions."""

    def __init__(self, rows: int, row_tiles: int, first: int = 0) -> None:
        self.first = first
        self.row_tile = largest_divisor(rows, PARTITIONS)
        tiles = rows // self.row_tile
        self.tiles = largest_divisor(tiles, row_tiles)
        self.block = self.row_tile * self.tiles
        self.blocks = rows // self.block

    def chunk(self, extent: int) -> int:
        """Elements of an axis that lie on partitions at a time."""
        return largest_divisor(extent, 128)

    def chunks(self, extent: int) -> int:
        """How many of those there are."""
        return extent // self.chunk(extent)


def tilings(rows: int, row_tiles: int) -> list[Tiling]:
    """All rows cut alike; or, where tiles of that kind had few rows, full tiles and what is left."""
    if rows <= PARTITIONS or largest_divisor(rows, PARTITIONS) >= PARTITIONS // 2:
        return [Tiling(rows, row_tiles)]
    full = rows // PARTITIONS * PARTITIONS
    return [Tiling(full, row_tiles), Tiling(rows - full, 1, full)]


PlacedTiles = dict[Placed, Tile]
