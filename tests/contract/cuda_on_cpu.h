// CUDA C++ on one core, for tests: a block's threads are fibers that change at barriers and shuffles,
// blocks run one after the other. Shared memory is static; what lanes that are gone would give is NaN.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
static const int warpSize = 32;
#define __noinline__
#define __shared__ static
#define __constant__ static
#define __launch_bounds__(...)

struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) int2 { int x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static uint3 threadIdx, blockIdx, blockDim, gridDim;
alignas(128) static char dynamic_shared[232448];

// Two-byte numbers, by way of float.
template <typename T> struct Short {
  T value;
  Short() = default;
  Short(float from) : value(static_cast<T>(from)) {}
  Short(double from) : value(static_cast<T>(static_cast<float>(from))) {}
  Short(int from) : value(static_cast<T>(static_cast<float>(from))) {}
  operator float() const { return static_cast<float>(value); }
  Short& operator+=(Short other) { return *this = Short(float(*this) + float(other)); }
  Short& operator*=(Short other) { return *this = Short(float(*this) * float(other)); }
};
#define OF_SHORTS(S) template <typename T> inline Short<T> operator S(Short<T> a, Short<T> b) { return Short<T>(float(a) S float(b)); }
OF_SHORTS(+) OF_SHORTS(-) OF_SHORTS(*) OF_SHORTS(/)
#define COMPARED(S) template <typename T> inline bool operator S(Short<T> a, Short<T> b) { return float(a) S float(b); }
COMPARED(<) COMPARED(>) COMPARED(<=) COMPARED(>=)
struct Brain {
  uint16_t bits;
  Brain() = default;
  explicit Brain(float from) {
    uint32_t whole;
    memcpy(&whole, &from, 4);
    bits = from == from ? (whole + 0x7fff + (whole >> 16 & 1)) >> 16 : 0x7fff;
  }
  operator float() const {
    uint32_t whole = uint32_t(bits) << 16;
    float to;
    memcpy(&to, &whole, 4);
    return to;
  }
};
using __half = Short<_Float16>;
using half = __half;
using __nv_bfloat16 = Short<Brain>;
using nv_bfloat16 = __nv_bfloat16;
inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
template <typename T> Short<T> __hadd(Short<T> a, Short<T> b) { return a + b; }
template <typename T> Short<T> __hmul(Short<T> a, Short<T> b) { return a * b; }
template <typename T> Short<T> __hmax(Short<T> a, Short<T> b) { return a > b ? a : b; }

template <typename A, typename B> auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
template <typename A, typename B> auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __saturatef(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
template <typename T> T __ldg(const T* p) { return *p; }
template <typename T> T __ldcs(const T* p) { return *p; }
template <typename T> T __ldcg(const T* p) { return *p; }
template <typename T> void __stcs(T* p, T value) { *p = value; }
template <typename T> struct Same { using type = T; };
template <typename T> void __stcs(T* p, typename Same<T>::type value, int) { *p = value; }
inline void __stcs(float* p, double value) { *p = value; }
#define CHANGED(NAME, VALUE) template <typename T> T NAME(T* p, typename Same<T>::type v) { T old = *p; *p = VALUE; return old; }
CHANGED(atomicAdd, old + v) CHANGED(atomicMax, old > v ? old : v) CHANGED(atomicMin, old < v ? old : v)
CHANGED(atomicExch, v)

namespace cpu {
struct Fiber { void* place[5]; ucontext_t context; uint3 index; bool begun, done; };
static void* home_place[5];
static std::deque<Fiber> fibers;
static int now, alive, arrived, generation, idle;
static int warp_arrived[32], warp_generation[32], warp_alive[32];
static char slots[1024][16];
struct Copying { char* to; const char* from; int batch; };
static std::deque<Copying> copying[1024];
static int batches[1024];
static bool backwards;
static void (*entry)(void*);
static void* given;

[[noreturn]] inline void stop(const char* why) { printf("%s\n", why); fflush(stdout); _Exit(3); }
[[noreturn]] __attribute__((noinline)) void leave(void** place) { __builtin_longjmp(place, 1); }
__attribute__((noinline)) void pause() {
  if (!__builtin_setjmp(fibers[now].place)) leave(home_place);
}
inline void yield() {
  if (++idle > 4 * static_cast<int>(fibers.size()) + 8) stop("STUCK");
  pause();
}
inline void block_barrier() {
  int before = generation;
  if (++arrived == alive) { arrived = 0; ++generation; idle = 0; }
  while (before == generation) yield();
}
inline void warp_barrier() {
  int warp = now / 32, before = warp_generation[warp];
  if (++warp_arrived[warp] == warp_alive[warp]) { warp_arrived[warp] = 0; ++warp_generation[warp]; idle = 0; }
  while (before == warp_generation[warp]) yield();
}
static void one_block() {
  int mine = now;
  entry(given);
  idle = 0;
  fibers[mine].done = true;
  memset(slots[mine], 0xff, sizeof slots[mine]);
  if (--alive == arrived && alive) { arrived = 0; ++generation; }
  int warp = mine / 32;
  if (--warp_alive[warp] == warp_arrived[warp] && warp_alive[warp]) { warp_arrived[warp] = 0; ++warp_generation[warp]; }
}
static void body() {
  for (;;) { one_block(); pause(); }
}
__attribute__((noinline)) void resume(Fiber& fiber) {
  if (__builtin_setjmp(home_place)) return;
  if (fiber.begun) leave(fiber.place);
  fiber.begun = true;
  setcontext(&fiber.context);
}
inline void run_block() {
  int count = blockDim.x * blockDim.y * blockDim.z;
  for (int at = fibers.size(); at < count; ++at) {
    fibers.emplace_back();
    ucontext_t& context = fibers[at].context;
    getcontext(&context);
    context.uc_stack.ss_sp = malloc(65536);
    context.uc_stack.ss_size = 65536;
    makecontext(&context, body, 0);
  }
  alive = count; arrived = 0; idle = 0;
  memset(slots, 0xff, sizeof slots);
  for (int warp = 0; warp < 32; ++warp) {
    warp_arrived[warp] = 0;
    warp_alive[warp] = count > 32 * warp ? (count - 32 * warp < 32 ? count - 32 * warp : 32) : 0;
  }
  for (int at = 0; at < count; ++at) {
    fibers[at].index = {at % blockDim.x, at / blockDim.x % blockDim.y, at / (blockDim.x * blockDim.y)};
    fibers[at].done = false;
    copying[at].clear();
  }
  while (alive) {
    for (int turn = 0; turn < count; ++turn) {
      now = backwards ? count - 1 - turn : turn;
      if (fibers[now].done) continue;
      threadIdx = fibers[now].index;
      resume(fibers[now]);
    }
  }
}
template <typename F> void launch(uint3 grid, uint3 block, F call) {
  gridDim = grid; blockDim = block;
  entry = [](void* of) { (*static_cast<F*>(of))(); };
  given = &call;
  unsigned blocks = grid.x * grid.y * grid.z;
  for (unsigned turn = 0; turn < blocks; ++turn) {
    unsigned at = backwards ? blocks - 1 - turn : turn;
    blockIdx = {at % grid.x, at / grid.x % grid.y, at / (grid.x * grid.y)};
    run_block();
  }
}
template <typename T> T exchanged(T value, int from) {
  int first = now / 32 * 32, mine = now;
  memcpy(slots[mine], &value, sizeof value);
  warp_barrier();
  T got;
  memcpy(&got, slots[first + (from & 31)], sizeof got);
  warp_barrier();
  return got;
}
}  // namespace cpu

inline void __syncthreads() { cpu::block_barrier(); }
inline void __syncwarp(unsigned = ~0u) { cpu::warp_barrier(); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int by) { return cpu::exchanged(value, (cpu::now & 31) ^ by); }
template <typename T> T __shfl_down_sync(unsigned, T value, int by) {
  int to = (cpu::now & 31) + by;
  return cpu::exchanged(value, to < 32 ? to : cpu::now & 31);
}
template <typename T> T __shfl_sync(unsigned, T value, int from) { return cpu::exchanged(value, from); }

// Copies that run beside the arithmetic: nothing is there before it was waited for.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
  if (bytes != 16 || reinterpret_cast<size_t>(to) % 16 || reinterpret_cast<size_t>(from) % 16) cpu::stop("UNALIGNED");
  volatile char there = static_cast<const char*>(from)[0] + static_cast<const char*>(from)[15];
  (void)there;
  memset(to, 0xff, 16);
  cpu::copying[cpu::now].push_back({static_cast<char*>(to), static_cast<const char*>(from), cpu::batches[cpu::now]});
}
inline void __pipeline_commit() { ++cpu::batches[cpu::now]; }
inline void __pipeline_wait_prior(int prior) {
  auto& mine = cpu::copying[cpu::now];
  for (; !mine.empty() && mine.front().batch < cpu::batches[cpu::now] - prior; mine.pop_front())
    memcpy(mine.front().to, mine.front().from, 16);
}

// Tensor cores: a lane has half a row of sums, and of the operands what they need.
namespace nvcuda { namespace wmma {
struct row_major {}; struct col_major {}; struct matrix_a {}; struct matrix_b {}; struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };
template <typename Use, int M, int N, int K, typename T, typename Layout = row_major> struct fragment { float x[16][8]; static constexpr int num_elements = 8; };
inline int row() { return (cpu::now & 31) / 2; }
inline int column() { return (cpu::now & 1) * 8; }
inline void check(const void* p) { if (reinterpret_cast<size_t>(p) % 32) cpu::stop("UNALIGNED"); }
template <typename F> void fill_fragment(F& f, float value) { for (float& one : f.x[0]) one = value; }
template <typename T, typename L> void load_matrix_sync(fragment<matrix_a, 16, 16, 16, T, L>& f, const T* p, unsigned ld) {
  check(p);
  for (int k = 0; k < 16; ++k) f.x[k][0] = p[std::is_same_v<L, row_major> ? row() * ld + k : k * ld + row()];
}
template <typename T, typename L> void load_matrix_sync(fragment<matrix_b, 16, 16, 16, T, L>& f, const T* p, unsigned ld) {
  check(p);
  for (int k = 0; k < 16; ++k) for (int j = 0; j < 8; ++j)
    f.x[k][j] = p[std::is_same_v<L, row_major> ? k * ld + column() + j : (column() + j) * ld + k];
}
template <typename A, typename B, typename C> void mma_sync(C& d, const A& a, const B& b, const C& c) {
  for (int j = 0; j < 8; ++j) {
    float sum = c.x[0][j];
    for (int k = 0; k < 16; ++k) sum += a.x[k][0] * b.x[k][j];
    d.x[0][j] = sum;
  }
}
template <typename C> void store_matrix_sync(float* p, const C& c, unsigned ld, layout_t) {
  check(p);
  for (int j = 0; j < 8; ++j) p[row() * ld + column() + j] = c.x[0][j];
}
}}  // namespace nvcuda::wmma

// An array of a test, between pages that nobody may touch: aligned to 16 bytes, or `shift` elements on.
template <typename T> struct Array {
  char* pages;
  size_t count, whole;
  T* data;
  Array(size_t count, size_t shift) : count(count) {
    size_t bytes = (count + shift) * sizeof(T), page = 4096;
    whole = (bytes + 2 * page + page) / page * page;
    pages = static_cast<char*>(mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(pages + page, whole - 2 * page, PROT_READ | PROT_WRITE);
    size_t start = reinterpret_cast<size_t>(pages + whole - page - bytes) / 16 * 16;
    data = reinterpret_cast<T*>(start) + shift;
  }
  ~Array() { munmap(pages, whole); }
  void draw(unsigned seed, double low, double high, bool whole) {
    for (size_t i = 0; i < count; ++i) {
      seed = seed * 1664525u + 1013904223u;
      double value = low + (high - low) * ((seed >> 8) / 16777216.0);
      data[i] = T(whole ? std::floor(value) : value);
    }
  }
  void copy(const Array& other) { for (size_t i = 0; i < count; ++i) data[i] = other.data[i]; }
  bool equals(const Array& other, double relative, double absolute, const char* name, int source, double number, int shift, int backwards) const {
    for (size_t i = 0; i < count; ++i) {
      double a = double(data[i]), b = double(other.data[i]);
      if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
      if (!(std::fabs(a - b) <= absolute + relative * std::fabs(b))) {
        printf("source %d for %g, shift %d, backwards %d: %s[%zu] is %g, not %g\n", source, number, shift, backwards, name, i, a, b);
        return false;
      }
    }
    return true;
  }
};
