"""Products of two matrices as public projects timed them on trn2, written anew from their description.

All take lhsT (K, M) and rhs (K, N) in HBM and return (M, N). Tiles are 128 of K, 128 of M, 512 of N.
"""

import nki
import nki.isa as nisa
import nki.language as nl

K_TILE, M_TILE, N_TILE = 128, 128, 512


def _loaded(source, rows, columns):
    """A new tile with a part of a matrix in HBM."""
    tile = nl.ndarray(
        (rows[1] - rows[0], columns[1] - columns[0]), dtype=source.dtype, buffer=nl.sbuf
    )
    nisa.dma_copy(dst=tile, src=source[rows[0] : rows[1], columns[0] : columns[1]])
    return tile


def _part(number, size):
    return number * size, (number + 1) * size


def _result_of(lhsT, rhs):
    return nl.ndarray((lhsT.shape[1], rhs.shape[1]), dtype=lhsT.dtype, buffer=nl.shared_hbm)


def _accumulator():
    return nl.ndarray((M_TILE, N_TILE), dtype=nl.float32, buffer=nl.psum)


def _store(result, m, n, sums):
    """Copies a finished tile out of PSUM and to HBM."""
    tile = nl.ndarray((M_TILE, N_TILE), dtype=result.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=sums)
    (top, bottom), (left, right) = _part(m, M_TILE), _part(n, N_TILE)
    nisa.dma_copy(dst=result[top:bottom, left:right], src=tile)


def _block(source, k, tiles_k, columns):
    """One tile with `tiles_k` tiles of K, loaded one by one."""
    block = nl.ndarray(
        (K_TILE, tiles_k, columns[1] - columns[0]), dtype=source.dtype, buffer=nl.sbuf
    )
    for one in range(tiles_k):
        top, bottom = _part(k * tiles_k + one, K_TILE)
        nisa.dma_copy(dst=block[:, one, :], src=source[top:bottom, columns[0] : columns[1]])
    return block


def _blocked(lhsT, rhs, tiles_m, tiles_n, tiles_k, sums_dtype):
    """Blocks of tiles_m x tiles_n x tiles_k tiles; sums in SBUF over the blocks of K."""
    (K, M), N = lhsT.shape, rhs.shape[1]
    block_k, block_m, block_n = K_TILE * tiles_k, M_TILE * tiles_m, N_TILE * tiles_n
    assert K % block_k == 0 and M % block_m == 0 and N % block_n == 0
    result = _result_of(lhsT, rhs)
    for n in range(N // block_n):
        sums = []
        for _ in range(M // M_TILE):
            row = nl.ndarray((M_TILE, tiles_n, N_TILE), dtype=sums_dtype, buffer=nl.sbuf)
            nisa.memset(dst=row, value=0)
            sums.append(row)
        for k in nl.sequential_range(K // block_k):
            right = _block(rhs, k, tiles_k, _part(n, block_n))
            for m in range(M // block_m):
                left = _block(lhsT, k, tiles_k, _part(m, block_m))
                for bn in range(tiles_n):
                    for bm in range(tiles_m):
                        product = _accumulator()
                        for one in range(tiles_k):
                            nisa.nc_matmul(
                                dst=product,
                                stationary=left[:, one, bm * M_TILE : (bm + 1) * M_TILE],
                                moving=right[:, one, bn * N_TILE : (bn + 1) * N_TILE],
                            )
                        place = sums[m * tiles_m + bm][:, bn, :]
                        nisa.tensor_tensor(dst=place, data1=place, data2=product, op=nl.add)
        for m in range(M // M_TILE):
            (top, bottom), (first, last) = _part(m, M_TILE), _part(n, block_n)
            done = sums[m].reshape((M_TILE, block_n))
            if sums_dtype != result.dtype:
                done = nl.ndarray((M_TILE, block_n), dtype=result.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=done, src=sums[m].reshape((M_TILE, block_n)))
            nisa.dma_copy(dst=result[top:bottom, first:last], src=done)
    return result


@nki.jit
def fully_optimized(lhsT, rhs, TILES_IN_BLOCK_M, TILES_IN_BLOCK_N, TILES_IN_BLOCK_K):
    """Sums in the result's format."""
    tiles = TILES_IN_BLOCK_M, TILES_IN_BLOCK_N, TILES_IN_BLOCK_K
    return _blocked(lhsT, rhs, *tiles, lhsT.dtype)


def _largest(tiles, most):
    return max(one for one in range(1, min(tiles, most) + 1) if tiles % one == 0)


@nki.jit
def expert(lhsT, rhs, CM, CN, CK):
    """Sums in fp32; each block is the largest that divides the whole and is not above its cap."""
    (K, M), N = lhsT.shape, rhs.shape[1]
    tiles = _largest(M // M_TILE, CM), _largest(N // N_TILE, CN), _largest(K // K_TILE, CK)
    return _blocked(lhsT, rhs, *tiles, nl.float32)


@nki.jit
def start(lhsT, rhs):
    """Both tiles are loaded for each product; m, n, k."""
    result = _result_of(lhsT, rhs)
    for m in range(lhsT.shape[1] // M_TILE):
        for n in range(rhs.shape[1] // N_TILE):
            sums = _accumulator()
            for k in range(lhsT.shape[0] // K_TILE):
                left = _loaded(lhsT, _part(k, K_TILE), _part(m, M_TILE))
                right = _loaded(rhs, _part(k, K_TILE), _part(n, N_TILE))
                nisa.nc_matmul(dst=sums, stationary=left, moving=right)
            _store(result, m, n, sums)
    return result


@nki.jit
def n_outer(lhsT, rhs):
    """The same, n outside of m."""
    result = _result_of(lhsT, rhs)
    for n in range(rhs.shape[1] // N_TILE):
        for m in range(lhsT.shape[1] // M_TILE):
            sums = _accumulator()
            for k in range(lhsT.shape[0] // K_TILE):
                left = _loaded(lhsT, _part(k, K_TILE), _part(m, M_TILE))
                right = _loaded(rhs, _part(k, K_TILE), _part(n, N_TILE))
                nisa.nc_matmul(dst=sums, stationary=left, moving=right)
            _store(result, m, n, sums)
    return result


@nki.jit
def lhs_hoisted(lhsT, rhs):
    """All K of one m are loaded before the loop over n."""
    result = _result_of(lhsT, rhs)
    tiles_k = lhsT.shape[0] // K_TILE
    for m in range(lhsT.shape[1] // M_TILE):
        left = []
        for k in range(tiles_k):
            left.append(_loaded(lhsT, _part(k, K_TILE), _part(m, M_TILE)))
        for n in range(rhs.shape[1] // N_TILE):
            sums = _accumulator()
            for k in range(tiles_k):
                right = _loaded(rhs, _part(k, K_TILE), _part(n, N_TILE))
                nisa.nc_matmul(dst=sums, stationary=left[k], moving=right)
            _store(result, m, n, sums)
    return result


@nki.jit
def qwen(lhsT, rhs):
    """n outermost, all K of its columns loaded there; one tile of lhsT, refilled for each product."""
    result = _result_of(lhsT, rhs)
    tiles_k = lhsT.shape[0] // K_TILE
    for n in range(rhs.shape[1] // N_TILE):
        right = []
        for k in range(tiles_k):
            right.append(_loaded(rhs, _part(k, K_TILE), _part(n, N_TILE)))
        for m in range(lhsT.shape[1] // M_TILE):
            sums = _accumulator()
            left = nl.ndarray((K_TILE, M_TILE), dtype=lhsT.dtype, buffer=nl.sbuf)
            for k in range(tiles_k):
                (top, bottom), (first, last) = _part(k, K_TILE), _part(m, M_TILE)
                nisa.dma_copy(dst=left, src=lhsT[top:bottom, first:last])
                nisa.nc_matmul(dst=sums, stationary=left, moving=right[k])
            _store(result, m, n, sums)
    return result


@nki.jit
def by_dma_compute(lhsT, rhs):
    """`start` with a sum of one operand by the DMA engines in place of each copy."""
    result = _result_of(lhsT, rhs)
    for m in range(lhsT.shape[1] // M_TILE):
        for n in range(rhs.shape[1] // N_TILE):
            sums = _accumulator()
            (top, bottom), (first, last) = _part(m, M_TILE), _part(n, N_TILE)
            for k in range(lhsT.shape[0] // K_TILE):
                low, high = _part(k, K_TILE)
                left = nl.ndarray((K_TILE, M_TILE), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((K_TILE, N_TILE), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_compute(
                    dst=left, srcs=[lhsT[low:high, top:bottom]], scales=[1.0], reduce_op=nl.add
                )
                nisa.dma_compute(
                    dst=right, srcs=[rhs[low:high, first:last]], scales=[1.0], reduce_op=nl.add
                )
                nisa.nc_matmul(dst=sums, stationary=left, moving=right)
            tile = nl.ndarray((M_TILE, N_TILE), dtype=result.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=sums)
            nisa.dma_compute(
                dst=result[top:bottom, first:last], srcs=[tile], scales=[1.0], reduce_op=nl.add
            )
    return result


nki_matmul_tiled_ = start


@nki.jit
def nki_matmul_hoist_load_(lhsT, rhs):
    """lhsT's row is loaded once for each m, rhs's column for each n inside."""
    result = _result_of(lhsT, rhs)
    tiles_k = lhsT.shape[0] // K_TILE
    for m in range(lhsT.shape[1] // M_TILE):
        left = []
        for k in range(tiles_k):
            left.append(_loaded(lhsT, _part(k, K_TILE), _part(m, M_TILE)))
        for n in range(rhs.shape[1] // N_TILE):
            right = []
            for k in range(tiles_k):
                right.append(_loaded(rhs, _part(k, K_TILE), _part(n, N_TILE)))
            sums = _accumulator()
            for k in range(tiles_k):
                nisa.nc_matmul(dst=sums, stationary=left[k], moving=right[k])
            _store(result, m, n, sums)
    return result


@nki.jit
def nki_matmul_block_free_dimension_(lhsT, rhs):
    """Blocks of two tiles in M and two in N, all of K loaded for each."""
    result = _result_of(lhsT, rhs)
    tiles_k = lhsT.shape[0] // K_TILE
    for m in range(lhsT.shape[1] // (2 * M_TILE)):
        left = []
        for bm in range(2):
            for k in range(tiles_k):
                left.append(_loaded(lhsT, _part(k, K_TILE), _part(2 * m + bm, M_TILE)))
        for n in range(rhs.shape[1] // (2 * N_TILE)):
            right = []
            for bn in range(2):
                for k in range(tiles_k):
                    right.append(_loaded(rhs, _part(k, K_TILE), _part(2 * n + bn, N_TILE)))
            for bm in range(2):
                for bn in range(2):
                    sums = _accumulator()
                    for k in range(tiles_k):
                        nisa.nc_matmul(
                            dst=sums,
                            stationary=left[bm * tiles_k + k],
                            moving=right[bn * tiles_k + k],
                        )
                    _store(result, 2 * m + bm, 2 * n + bn, sums)
    return result


@nki.jit
def copy_tiled(source):
    """Load and store, 128 rows at a time."""
    rows, columns = source.shape
    result = nl.ndarray((rows, columns), dtype=source.dtype, buffer=nl.shared_hbm)
    for one in range(rows // 128):
        top, bottom = _part(one, 128)
        tile = _loaded(source, (top, bottom), (0, columns))
        nisa.dma_copy(dst=result[top:bottom, :], src=tile)
    return result
