// Symmetric matrices kept as one triangle of 32 x 32 tiles, for the dense curvature: X C, and C <- scale (C - U'U) in place.
//
// Tile (b, c), c <= b, holds rows 32b..32b+31 and columns 32c..32c+31, row by row; tiles lie one after the other, b by b.
// Each product reads every tile once, from memory in order, and uses it twice: as C_bc and as C_cb = C_bc'.
// Work is cut into parts by the size of the matrix alone, and parts are summed in order: the same bits on any number of threads.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr int64_t kTile = 32;   // rows and columns of a tile
constexpr int64_t kRun = 4;     // tiles that one pass keeps in the first-level cache
constexpr int64_t kAhead = 128;   // cache lines between what is read and what is fetched
constexpr int64_t kMaxRows = 10;  // rows of X multiplied at once

template <typename S> struct Simd { typedef S V __attribute__((vector_size(64), aligned(sizeof(S)), may_alias)); };
template <typename S> constexpr int64_t kLanes = 64 / sizeof(S);
template <typename S> constexpr int64_t kVectors = kTile / kLanes<S>;  // vectors in a tile's row

template <typename S> struct Aligned {  // zeroed memory on a 64-byte boundary
  explicit Aligned(int64_t count)
      : data(static_cast<S*>(std::aligned_alloc(64, (count * sizeof(S) + 63) / 64 * 64))) {
    std::memset(data, 0, count * sizeof(S));
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  S* data;
};

int64_t TilesBefore(int64_t b) { return b * (b + 1) / 2; }

// How many parts the work on `blocks` block rows is cut into; by size alone, never by the machine.
int64_t Parts(int64_t blocks) { return blocks < 12 ? 1 : blocks < 64 ? 2 : blocks < 256 ? 8 : 16; }

// The first block row of a part, such that all parts hold about as many tiles.
int64_t FirstBlock(int64_t part, int64_t parts, int64_t blocks) {
  int64_t b = static_cast<int64_t>(blocks * std::sqrt(static_cast<double>(part) / parts));
  return part == parts ? blocks : std::min(b, blocks);
}

// Runs work(0..parts-1), the calling thread taking its share; parts that no other thread starts it does itself.
template <typename F> void InParallel(ffi::ThreadPool& pool, int64_t parts, const F& work) {
  struct Shared { std::atomic<int64_t> next{0}, done{0}; };
  auto shared = std::make_shared<Shared>();
  const F* body = &work;
  auto take = [shared, body, parts] {
    for (int64_t part; (part = shared->next.fetch_add(1)) < parts;) {
      (*body)(part);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  int64_t helpers = parts > 1 ? std::min<int64_t>(parts, pool.num_threads()) - 1 : 0;
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(decltype(take)(take));
  take();
  while (shared->done.load(std::memory_order_acquire) < parts) std::this_thread::yield();
}

// out (K x 32) += x' tile, where x (32 x K) are the rows' entries at the tile's rows.
template <typename S, int K> void TimesTile(const S* tile, const S* x, S* out, int64_t stride) {
  using V = typename Simd<S>::V;
  for (int64_t w = 0; w < kVectors<S>; w += 2) {
    V sum[K][2];
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      const V* at = reinterpret_cast<const V*>(out + k * stride) + w;
      sum[k][0] = at[0], sum[k][1] = at[1];
    }
    const V* c = reinterpret_cast<const V*>(tile) + w;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kTile; ++i, c += kVectors<S>) {
      __builtin_prefetch(c + kAhead), __builtin_prefetch(c + kAhead + 1);
      V c0 = c[0], c1 = c[1];
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) sum[k][0] += x[i * K + k] * c0, sum[k][1] += x[i * K + k] * c1;
    }
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      V* at = reinterpret_cast<V*>(out + k * stride) + w;
      at[0] = sum[k][0], at[1] = sum[k][1];
    }
  }
}

// sums[i][k] += lanes of sum_j tile[i, j] x[k, j], over `count` tiles that lie one after the other.
template <typename S, int K>
void TimesTransposed(const S* tiles, int64_t count, const S* x, int64_t stride, typename Simd<S>::V (*sums)[K]) {
  using V = typename Simd<S>::V;
  constexpr int kRows = K <= 1 ? 8 : K <= 2 ? 8 : K <= 4 ? 4 : 2;
  for (int64_t i = 0; i < kTile; i += kRows) {
    V sum[kRows][K];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) sum[r][k] = sums[i + r][k];
    for (int64_t t = 0; t < count; ++t) {
      const V* c = reinterpret_cast<const V*>(tiles + t * kTile * kTile) + i * kVectors<S>;
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors<S>; ++v) {
        V row[kRows];
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) row[r] = c[r * kVectors<S> + v];
#pragma GCC unroll 16
        for (int k = 0; k < K; ++k) {
          V xk = reinterpret_cast<const V*>(x + k * stride + t * kTile)[v];
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) sum[r][k] += row[r] * xk;
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) sums[i + r][k] = sum[r][k];
  }
}

// out (K x stride) += x C over the block rows first..last-1.
template <typename S, int K>
void TimesBlocks(const S* cov, const S* x, S* out, int64_t stride, int64_t first, int64_t last) {
  using V = typename Simd<S>::V;
  V sums[kTile][K];
  alignas(64) S here[kTile * K];
  for (int64_t b = first; b < last; ++b) {
    const S* tiles = cov + TilesBefore(b) * kTile * kTile;
    for (int64_t i = 0; i < kTile; ++i)
      for (int k = 0; k < K; ++k) here[i * K + k] = x[k * stride + b * kTile + i];
    std::memset(sums, 0, sizeof(sums));
    for (int64_t c = 0; c < b; c += kRun) {
      int64_t count = std::min(kRun, b - c);
      for (int64_t t = 0; t < count; ++t)
        TimesTile<S, K>(tiles + (c + t) * kTile * kTile, here, out + (c + t) * kTile, stride);
      TimesTransposed<S, K>(tiles + c * kTile * kTile, count, x + c * kTile, stride, sums);
    }
    TimesTransposed<S, K>(tiles + b * kTile * kTile, 1, x + b * kTile, stride, sums);
    for (int64_t i = 0; i < kTile; ++i)
      for (int k = 0; k < K; ++k) {
        S total = 0;
        for (int64_t lane = 0; lane < kLanes<S>; ++lane) total += sums[i][k][lane];
        out[k * stride + b * kTile + i] += total;
      }
  }
}

template <typename S>
void TimesBlocks(int64_t rows, const S* cov, const S* x, S* out, int64_t stride, int64_t first, int64_t last) {
  switch (rows) {
#define CASE(K) case K: return TimesBlocks<S, K>(cov, x, out, stride, first, last);
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10)
#undef CASE
  }
}

template <typename S> void Multiply(ffi::ThreadPool& pool, const S* cov, const S* x, S* out, int64_t rows, int64_t size) {
  int64_t blocks = (size + kTile - 1) / kTile, stride = blocks * kTile, parts = Parts(blocks);
  int64_t passes = (rows + kMaxRows - 1) / kMaxRows, at_once = (rows + passes - 1) / passes;
  Aligned<S> padded(rows * stride), sums(parts * rows * stride);
  for (int64_t k = 0; k < rows; ++k) std::memcpy(padded.data + k * stride, x + k * size, size * sizeof(S));
  InParallel(pool, parts, [&](int64_t part) {
    int64_t first = FirstBlock(part, parts, blocks), last = FirstBlock(part + 1, parts, blocks);
    for (int64_t k = 0; k < rows; k += at_once)
      TimesBlocks<S>(std::min(at_once, rows - k), cov, padded.data + k * stride,
                     sums.data + (part * rows + k) * stride, stride, first, last);
  });
  for (int64_t k = 0; k < rows; ++k) {
    std::memcpy(out + k * size, sums.data + k * stride, size * sizeof(S));
    for (int64_t part = 1; part < parts; ++part) {
      const S* more = sums.data + (part * rows + k) * stride;
      for (int64_t j = 0; j < size; ++j) out[k * size + j] += more[j];
    }
  }
}

// Tiles of the block rows first..last-1 of C <- scale (C - U'U); panels hold U as (blocks, rows, 32).
template <typename S>
void FoldBlocks(S* cov, const S* panels, int64_t rows, S scale, int64_t first, int64_t last) {
  using V = typename Simd<S>::V;
  constexpr int kRows = 8;
  for (int64_t b = first; b < last; ++b)
    for (int64_t c = 0; c <= b; ++c) {
      S* tile = cov + (TilesBefore(b) + c) * kTile * kTile;
      const S* left = panels + b * rows * kTile;
      const S* right = panels + c * rows * kTile;
      for (int64_t i = 0; i < kTile; i += kRows)
        for (int64_t w = 0; w < kVectors<S>; w += 2) {
          V* at = reinterpret_cast<V*>(tile) + i * kVectors<S> + w;
          V value[kRows][2];
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) value[r][0] = at[r * kVectors<S>], value[r][1] = at[r * kVectors<S> + 1];
#pragma GCC unroll 2
          for (int64_t u = 0; u < rows; ++u) {
            const V* across = reinterpret_cast<const V*>(right + u * kTile) + w;
            V u0 = across[0], u1 = across[1];
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
              S down = left[u * kTile + i + r];
              value[r][0] -= down * u0, value[r][1] -= down * u1;
            }
          }
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r)
            at[r * kVectors<S>] = scale * value[r][0], at[r * kVectors<S> + 1] = scale * value[r][1];
        }
    }
}

template <typename S> void Fold(ffi::ThreadPool& pool, S* cov, const S* u, S scale, int64_t rows, int64_t size) {
  int64_t blocks = (size + kTile - 1) / kTile, parts = Parts(blocks);
  Aligned<S> panels(blocks * rows * kTile);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t b = 0; b < blocks; ++b)
      std::memcpy(panels.data + (b * rows + r) * kTile, u + r * size + b * kTile,
                  std::min(kTile, size - b * kTile) * sizeof(S));
  InParallel(pool, parts, [&](int64_t part) {
    FoldBlocks<S>(cov, panels.data, rows, scale, FirstBlock(part, parts, blocks), FirstBlock(part + 1, parts, blocks));
  });
}

// Leading dimensions beyond these are a batch, one matrix after the other.
template <ffi::DataType D>
ffi::Error MultiplyCall(ffi::ThreadPool pool, ffi::Buffer<D> cov, ffi::Buffer<D> x, ffi::ResultBuffer<D> out) {
  auto dims = x.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2];
  int64_t batch = size * rows ? x.element_count() / (size * rows) : 0;
  for (int64_t i = 0; i < batch; ++i)
    Multiply(pool, cov.typed_data() + i * (cov.element_count() / batch), x.typed_data() + i * rows * size,
             out->typed_data() + i * rows * size, rows, size);
  return ffi::Error::Success();
}

template <ffi::DataType D>
ffi::Error FoldCall(ffi::ThreadPool pool, ffi::Buffer<D> cov, ffi::Buffer<D> u, ffi::Buffer<ffi::S32> count,
                    ffi::Buffer<D> scale, ffi::ResultBuffer<D> out) {
  auto dims = u.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2], batch = count.element_count();
  int64_t each = batch ? cov.element_count() / batch : 0;
  if (out->typed_data() != cov.typed_data())
    std::memcpy(out->typed_data(), cov.typed_data(), cov.size_bytes());
  for (int64_t i = 0; i < batch; ++i)
    if (int64_t used = count.typed_data()[i]; used > 0)
      Fold(pool, out->typed_data() + i * each, u.typed_data() + i * rows * size, scale.typed_data()[i], used, size);
  return ffi::Error::Success();
}

}  // namespace

#define MULTIPLY(NAME, D)                                                                  \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, MultiplyCall<D>,                                     \
                                ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<D>>() \
                                    .Arg<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>())
#define FOLD(NAME, D)                                                                      \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, FoldCall<D>,                                         \
                                ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<D>>() \
                                    .Arg<ffi::Buffer<D>>().Arg<ffi::Buffer<ffi::S32>>()       \
                                    .Arg<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>())

MULTIPLY(natkal_multiply_f32, ffi::F32);
MULTIPLY(natkal_multiply_f64, ffi::F64);
FOLD(natkal_fold_f32, ffi::F32);
FOLD(natkal_fold_f64, ffi::F64);
