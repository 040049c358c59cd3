// Symmetric matrices kept as one triangle of 32 x 32 tiles, for the dense curvature: C <- H scale (C - U'U) H in place,
// and X C - (X U') U, in one pass where both are asked for.
//
// Tile (b, c), c <= b, holds rows 32b..32b+31 and columns 32c..32c+31, row by row; tiles lie one after the other, b by b.
// Each pass reads every tile once, from memory in order, and uses it twice: as C_bc and as C_cb = C_bc'.
// Rows of X are kept as panels, 32 columns of all rows after each other: rows that are a power of two apart in memory would
// share one place in the cache.
// Work is cut into parts by the size of the matrix alone, and parts are summed in order: the same bits on any number of threads.

#include <cmath>
#include <cstring>

#include "team.h"

namespace ffi = xla::ffi;

namespace {

using namespace natkal;

constexpr int64_t kTile = 32;   // rows and columns of a tile
constexpr int64_t kArea = kTile * kTile;
constexpr int64_t kAhead = 128;   // cache lines between what is read and what is fetched
constexpr int64_t kMaxRows = 10;  // rows of X multiplied at once
template <int K> constexpr int64_t kRun = K < 5 ? 4 : 8;  // tiles used as themselves before they are used transposed

template <typename S> constexpr int64_t kVectors = kTile / kLanes<S>;  // vectors in a tile's row

int64_t TilesBefore(int64_t b) { return b * (b + 1) / 2; }

// How many parts the work on `blocks` block rows is cut into; by size alone, never by the machine.
int64_t Parts(int64_t blocks) { return blocks < 12 ? 1 : blocks < 64 ? 2 : blocks < 256 ? 8 : 16; }

// The first block row of a part, such that all parts hold about as many tiles.
int64_t FirstBlock(int64_t part, int64_t parts, int64_t blocks) {
  int64_t b = static_cast<int64_t>(blocks * std::sqrt(static_cast<double>(part) / parts));
  return part == parts ? blocks : std::min(b, blocks);
}

// One matrix and what is asked of it.
template <typename S> struct Task {
  S* cov;             // C; written to only where something is folded
  const S* waiting;   // U, rows of `size` numbers
  int64_t fold;       // the first so many rows of U go into C first
  S scale;
  int64_t live;       // the first so many rows of U count beside C in the product
  S limit;            // the largest variance that stays when something is folded
  const S* x;         // rows x size
  S* out;
  int64_t rows, size;
};

// out (K x 32) += x' rows, where x is (count x K) and the rows of 32 numbers lie `apart`.
template <typename S, int K>
inline void TimesRows(const S* rows, int64_t apart, int64_t count, const S* x, S* out) {
  using V = typename Simd<S>::V;
  for (int64_t w = 0; w < kVectors<S>; w += 2) {
    V sum[K][2];
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      const V* at = reinterpret_cast<const V*>(out + k * kTile) + w;
      sum[k][0] = at[0], sum[k][1] = at[1];
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; ++i) {
      const V* c = reinterpret_cast<const V*>(rows + i * apart) + w;
      __builtin_prefetch(c + kAhead), __builtin_prefetch(c + kAhead + 1);
      V c0 = c[0], c1 = c[1];
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) sum[k][0] += x[i * K + k] * c0, sum[k][1] += x[i * K + k] * c1;
    }
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) {
      V* at = reinterpret_cast<V*>(out + k * kTile) + w;
      at[0] = sum[k][0], at[1] = sum[k][1];
    }
  }
}

// sums[r][k] += lanes of sum_j rows[r, j] x[k, j], over `count` panels of x; a row's next 32 numbers lie `next` further on.
template <typename S, int K, int R>
inline void TimesPanels(const S* rows, int64_t apart, int64_t next, int64_t count, const S* x,
                        typename Simd<S>::V (*sums)[K]) {
  using V = typename Simd<S>::V;
  V sum[R][K];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) sum[r][k] = sums[r][k];
  for (int64_t t = 0; t < count; ++t) {
    const V* panel = reinterpret_cast<const V*>(x + t * K * kTile);
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors<S>; ++v) {
      V row[R];
      if (K > 4 && R > 1)  // the next run's tiles, while the memory has nothing else to do
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
          __builtin_prefetch(reinterpret_cast<const V*>(rows + r * apart + (t + kRun<K>) * next) + v, 0, 2);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) row[r] = reinterpret_cast<const V*>(rows + r * apart + t * next)[v];
#pragma GCC unroll 16
      for (int k = 0; k < K; ++k) {
        V xk = panel[k * kVectors<S> + v];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) sum[r][k] += row[r] * xk;
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int k = 0; k < K; ++k) sums[r][k] = sum[r][k];
}

// tile <- scale (tile - left' right), where left and right are (rows x 32).
template <typename S> void FoldTile(S* tile, const S* left, const S* right, int64_t rows, S scale) {
  using V = typename Simd<S>::V;
  constexpr int kRows = 8;
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

// What waits to be folded, as panels (blocks, count, 32); none where count is 0. `holds` is H, or null where that is 1.
template <typename S> struct Fold {
  const S* panels;
  int64_t count;
  S scale;
  const S* holds;
  void Apply(S* tile, int64_t b, int64_t c) const {
    if (count) FoldTile(tile, panels + b * count * kTile, panels + c * count * kTile, count, scale);
    if (count && holds)
      for (int64_t i = 0; i < kTile; ++i)
        for (int64_t j = 0; j < kTile; ++j) tile[i * kTile + j] *= holds[b * kTile + i] * holds[c * kTile + j];
  }
};

// H (blocks * 32 numbers) after a fold of `count` rows given as panels; whether it is not 1.
template <typename S> bool Holds(const Task<S>& task, const S* panels, int64_t blocks, S* holds) {
  bool over = false;
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t i = 0; i < kTile; ++i) {
      S variance = task.cov[(TilesBefore(b) + b) * kArea + i * kTile + i];
      for (int64_t u = 0; u < task.fold; ++u) {
        S down = panels[(b * task.fold + u) * kTile + i];
        variance -= down * down;
      }
      over |= Hold<S>(task.scale * variance, task.limit, holds + b * kTile + i);
    }
  return over;
}

// out (panels of K rows) += x C over the block rows first..last-1, each tile folded before it is used.
template <typename S, int K>
void TimesBlocks(S* cov, const Fold<S>& fold, const S* x, S* out, int64_t first, int64_t last) {
  using V = typename Simd<S>::V;
  constexpr int kRows = K <= 2 ? 8 : K <= 4 ? 4 : 2;
  constexpr int64_t kPanel = K * kTile;
  V sums[kTile][K];
  alignas(64) S here[kPanel];
  for (int64_t b = first; b < last; ++b) {
    S* tiles = cov + TilesBefore(b) * kArea;
    for (int k = 0; k < K; ++k)
      for (int64_t i = 0; i < kTile; ++i) here[i * K + k] = x[b * kPanel + k * kTile + i];
    std::memset(sums, 0, sizeof(sums));
    for (int64_t c = 0; c <= b; c += kRun<K>) {
      int64_t count = std::min(kRun<K>, b + 1 - c);
      for (int64_t t = c; t < c + count; ++t) {
        fold.Apply(tiles + t * kArea, b, t);
        if (t < b) TimesRows<S, K>(tiles + t * kArea, kTile, kTile, here, out + t * kPanel);
      }
      for (int64_t i = 0; i < kTile; i += kRows)
        TimesPanels<S, K, kRows>(tiles + c * kArea + i * kTile, kTile, kArea, count, x + c * kPanel, sums + i);
    }
    for (int k = 0; k < K; ++k)
      for (int64_t i = 0; i < kTile; ++i) out[b * kPanel + k * kTile + i] += LaneSum<S>(sums[i][k]);
  }
}

// One product with K rows. Panels of U's last block, which may be narrower than 32, are padded in `last`.
template <typename S, int K> struct Product {
  using V = typename Simd<S>::V;
  static constexpr int64_t kPanel = K * kTile;
  const Task<S>& task;
  const Fold<S>& fold;
  S *x, *sums, *shares, *last;  // panels of x; of each part's sums; -(x U') as (live x K)
  int64_t blocks, parts;

  static int64_t Needs(int64_t blocks, int64_t parts, int64_t live) {
    return (1 + parts) * blocks * kPanel + live * K + 16 + live * kTile;
  }

  Product(const Task<S>& task, const Fold<S>& fold, S* memory, int64_t blocks, int64_t parts)
      : task(task), fold(fold), x(memory), sums(x + blocks * kPanel), last(sums + parts * blocks * kPanel),
        blocks(blocks), parts(parts) {
    shares = last + task.live * kTile;
  }

  int64_t Width(int64_t b) const { return std::min(kTile, task.size - b * kTile); }

  void Run(ffi::ThreadPool& pool, const S* rows, S* out) {
    for (int64_t b = 0; b < blocks; ++b)
      for (int k = 0; k < K; ++k) Padded(rows + k * task.size, b, x + b * kPanel + k * kTile);
    for (int64_t u = 0; u < task.live; ++u) Padded(task.waiting + u * task.size, blocks - 1, last + u * kTile);
    InParallel(pool, parts, [&](int64_t part) {
      S* own = sums + part * blocks * kPanel;
      std::memset(own, 0, blocks * kPanel * sizeof(S));
      TimesBlocks<S, K>(task.cov, fold, x, own, FirstBlock(part, parts, blocks), FirstBlock(part + 1, parts, blocks));
      Shares(task.live * part / parts, task.live * (part + 1) / parts);
    });
    InParallel(pool, task.live ? parts : 1, [&](int64_t part) {
      int64_t of = task.live ? parts : 1;
      for (int64_t b = blocks * part / of; b < blocks * (part + 1) / of; ++b) Finish(b, out);
    });
  }

  void Padded(const S* row, int64_t b, S* to) const {
    std::memset(to, 0, kTile * sizeof(S));
    std::memcpy(to, row + b * kTile, Width(b) * sizeof(S));
  }

  void Shares(int64_t first, int64_t end) {
    for (int64_t u = first; u < end; ++u) {
      V lanes[1][K] = {};
      TimesPanels<S, K, 1>(task.waiting + u * task.size, 0, kTile, blocks - 1, x, lanes);
      TimesPanels<S, K, 1>(last + u * kTile, 0, kTile, 1, x + (blocks - 1) * kPanel, lanes);
      for (int k = 0; k < K; ++k) shares[u * K + k] = -LaneSum<S>(lanes[0][k]);
    }
  }

  void Finish(int64_t b, S* out) {
    S* total = sums + b * kPanel;
    for (int64_t part = 1; part < parts; ++part) {
      const S* more = total + part * blocks * kPanel;
      for (int64_t j = 0; j < kPanel; ++j) total[j] += more[j];
    }
    bool whole = b + 1 < blocks;
    TimesRows<S, K>(whole ? task.waiting + b * kTile : last, whole ? task.size : kTile, task.live, shares, total);
    for (int k = 0; k < K; ++k)
      std::memcpy(out + k * task.size + b * kTile, total + k * kTile, Width(b) * sizeof(S));
  }
};

template <typename S, int K>
void Multiply(ffi::ThreadPool& pool, const Task<S>& task, const Fold<S>& fold, S* memory, int64_t k, int64_t blocks) {
  Product<S, K>(task, fold, memory, blocks, Parts(blocks)).Run(pool, task.x + k * task.size, task.out + k * task.size);
}

// All of a task: rows of X in groups of at most ten, C folded on the way of the first.
template <typename S> void Advance(ffi::ThreadPool& pool, const Task<S>& task) {
  int64_t blocks = (task.size + kTile - 1) / kTile, parts = Parts(blocks), folded = blocks * task.fold * kTile;
  Scratch<S> scratch(folded + blocks * kTile + Product<S, kMaxRows>::Needs(blocks, parts, task.live));
  S *memory = scratch.data(), *holds = memory + folded, *rest = holds + blocks * kTile;
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t u = 0; u < task.fold; ++u) {
      S* panel = memory + (b * task.fold + u) * kTile;
      std::memset(panel, 0, kTile * sizeof(S));
      std::memcpy(panel, task.waiting + u * task.size + b * kTile,
                  std::min(kTile, task.size - b * kTile) * sizeof(S));
    }
  bool over = task.fold && Holds<S>(task, memory, blocks, holds);
  Fold<S> fold{memory, task.fold, task.scale, over ? holds : nullptr}, done{nullptr, 0, S(1), nullptr};
  if (task.rows == 0 && task.fold)
    InParallel(pool, parts, [&](int64_t part) {
      for (int64_t b = FirstBlock(part, parts, blocks); b < FirstBlock(part + 1, parts, blocks); ++b)
        for (int64_t c = 0; c <= b; ++c) fold.Apply(task.cov + (TilesBefore(b) + c) * kArea, b, c);
    });
  int64_t passes = (task.rows + kMaxRows - 1) / kMaxRows, at_once = passes ? (task.rows + passes - 1) / passes : 0;
  for (int64_t k = 0; k < task.rows; k += at_once) switch (std::min(at_once, task.rows - k)) {
#define CASE(K) case K: Multiply<S, K>(pool, task, k ? done : fold, rest, k, blocks); break;
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10)
#undef CASE
  }
}

// Leading dimensions beyond those of one matrix are a batch, one after the other.
template <ffi::DataType D>
ffi::Error MultiplyCall(ffi::ThreadPool pool, ffi::Buffer<D> cov, ffi::Buffer<D> waiting, ffi::Buffer<ffi::S32> live,
                        ffi::Buffer<D> x, ffi::ResultBuffer<D> out) {
  using S = ffi::NativeType<D>;
  auto dims = x.dimensions(), kept = waiting.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2], room = kept[kept.size() - 2];
  int64_t batch = live.element_count(), each = batch ? cov.element_count() / batch : 0;
  for (int64_t i = 0; i < batch; ++i)
    Advance<S>(pool, {cov.typed_data() + i * each, waiting.typed_data() + i * room * size, 0, S(1),
                      live.typed_data()[i], S(1), x.typed_data() + i * rows * size,
                      out->typed_data() + i * rows * size, rows, size});
  return ffi::Error::Success();
}

template <ffi::DataType D>
ffi::Error AdvanceCall(ffi::ThreadPool pool, ffi::Buffer<D> cov, ffi::Buffer<D> waiting, ffi::Buffer<ffi::S32> fold,
                       ffi::Buffer<D> scale, ffi::Buffer<ffi::S32> live, ffi::Buffer<D> limit, ffi::Buffer<D> x,
                       ffi::ResultBuffer<D> folded,
                       ffi::ResultBuffer<D> out, ffi::ResultBuffer<D> gram) {
  using S = ffi::NativeType<D>;
  auto dims = x.dimensions(), kept = waiting.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2], room = kept[kept.size() - 2];
  int64_t batch = live.element_count(), each = batch ? cov.element_count() / batch : 0;
  if (folded->typed_data() != cov.typed_data())
    std::memcpy(folded->typed_data(), cov.typed_data(), cov.size_bytes());
  for (int64_t i = 0; i < batch; ++i)
    Advance<S>(pool, {folded->typed_data() + i * each, waiting.typed_data() + i * room * size, fold.typed_data()[i],
                      scale.typed_data()[i], live.typed_data()[i], limit.typed_data()[i],
                      x.typed_data() + i * rows * size, out->typed_data() + i * rows * size, rows, size});
  for (int64_t i = 0; i < batch; ++i)
    Gram<S>(x.typed_data() + i * rows * size, out->typed_data() + i * rows * size, rows, size,
            gram->typed_data() + i * rows * rows);
  return ffi::Error::Success();
}

}  // namespace

// One kind of number for each compilation (native.py).
#ifdef NATKAL_F32
NATKAL_MULTIPLY(natkal_packed_multiply_f32, ffi::F32);
NATKAL_ADVANCE(natkal_packed_advance_f32, ffi::F32);
#endif
#ifdef NATKAL_F64
NATKAL_MULTIPLY(natkal_packed_multiply_f64, ffi::F64);
NATKAL_ADVANCE(natkal_packed_advance_f64, ffi::F64);
#endif
