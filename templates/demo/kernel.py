import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape[1:]
    for row in range(rows):
        for j in range(columns // 128):
            tile = x[0:128, row, j * 128 : (j + 1) * 128]
            x_tile = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=tile)
            sigmoid = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.activation(dst=sigmoid, op=nl.exp, data=x_tile, scale=-1.0)
            nisa.tensor_scalar(dst=sigmoid, data=sigmoid, op0=nl.add, operand0=1.0)
            nisa.reciprocal(dst=sigmoid, data=sigmoid)
            y_tile = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=sigmoid, op=nl.multiply)
            nisa.dma_copy(dst=result[0:128, row, j * 128 : (j + 1) * 128], src=y_tile)
    return result
