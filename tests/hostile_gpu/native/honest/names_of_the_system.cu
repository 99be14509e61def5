// does: has variables and functions that are called read, write, index and clone
// claims: rmsnorm_h4096
// verdict: correct
#include "rms.cuh"

#include <algorithm>
#include <vector>
struct Tile { int first, last; int index(int i) const { return first + i; } void sync() const {} };
static int wait(int rows) { return rows; }
template <typename T> T select(bool which, T a, T b) { return which ? a : b; }

void run(TensorView x, TensorView weight, TensorView out) {
  int read = static_cast<int>(x.size(1)), write = wait(static_cast<int>(x.size(0)));
  std::vector<Tile> tiles{{0, write}};
  Tile tile = tiles.front();
  tile.sync();
  auto close = [&](int link) { return select(link > 0, link, 1); };
  launch(x, weight, out, close(tile.last - tile.index(0)), read, stream_of(x));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
