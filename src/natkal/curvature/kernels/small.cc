// Many small symmetric matrices, each in full, for fleets of learners: C <- H scale (C - U'U) H in place and X C - (X U') U, one
// matrix after the other, each while it is in the first-level cache, on all threads; and the rows that wait.

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "team.h"

namespace ffi = xla::ffi;

namespace {

using namespace natkal;

constexpr int64_t kLeast = 64;  // matrices that are worth a second thread

// Runs work(first, last) over a batch in stretches of equal length.
template <typename F> void Each(ffi::ThreadPool& pool, int64_t batch, const F& work) {
  int64_t parts = std::max<int64_t>(1, std::min<int64_t>(4 * pool.num_threads(), batch / kLeast));
  InParallel(pool, parts, [&](int64_t part) { work(batch * part / parts, batch * (part + 1) / parts); });
}

template <typename S, int B> struct Chunk { typedef S V __attribute__((vector_size(B), aligned(sizeof(S)), may_alias)); };

// body(width, j) for columns j.. in vectors of 64 bytes, then of 32, 16 and so on, so that all `size` columns are covered.
template <typename S, int B = 64, typename F> inline void Columns(int64_t size, const F& body, int64_t j = 0) {
  constexpr int64_t kWide = B / sizeof(S);
  for (; j + kWide <= size; j += kWide) body(std::integral_constant<int, B>{}, j);
  if constexpr (kWide > 1) Columns<S, B / 2>(size, body, j);
}

// C <- H scale (C - U'U) H, U the first `count` rows; H is 1 but for variances above the limit. `holds` is `size` numbers.
template <typename S>
inline void Fold(S* cov, const S* waiting, int64_t count, S scale, S limit, int64_t size, S* holds) {
  bool over = false;
  for (int64_t i = 0; i < size; ++i) {
    S variance = cov[i * size + i];
    for (int64_t u = 0; u < count; ++u) variance -= waiting[u * size + i] * waiting[u * size + i];
    over |= Hold<S>(scale * variance, limit, holds + i);
  }
  Columns<S>(size, [&](auto width, int64_t j) {
    using V = typename Chunk<S, width>::V;
    for (int64_t i = 0; i < size; ++i) {
      V* at = reinterpret_cast<V*>(cov + i * size + j);
      V value = *at;
      for (int64_t u = 0; u < count; ++u)
        value -= waiting[u * size + i] * *reinterpret_cast<const V*>(waiting + u * size + j);
      *at = scale * value;
    }
  });
  // Narrower vectors may round otherwise, and what is not symmetric is never corrected: it grows by 1 / keep at each step.
  for (int64_t j = size / kLanes<S> * kLanes<S>; j < size; ++j)
    for (int64_t i = 0; i < j; ++i) cov[i * size + j] = cov[j * size + i];
  if (over)
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < size; ++j) cov[i * size + j] *= holds[i] * holds[j];
}

// out += x rows, where the rows have `size` numbers each; in four sums, so that none waits for the one before it.
template <typename S> inline void AddRows(const S* rows, int64_t count, const S* x, S* out, int64_t size) {
  Columns<S>(size, [&](auto width, int64_t j) {
    using V = typename Chunk<S, width>::V;
    V sum[4] = {*reinterpret_cast<const V*>(out + j)};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) sum[s] += x[i + s] * *reinterpret_cast<const V*>(rows + (i + s) * size + j);
    for (; i < count; ++i) sum[0] += x[i] * *reinterpret_cast<const V*>(rows + i * size + j);
    *reinterpret_cast<V*>(out + j) = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  });
}

// out = x C - (x U') U for one row x, U the first `live` rows.
template <typename S>
inline void Times(const S* cov, const S* waiting, int64_t live, const S* x, S* out, int64_t size) {
  std::memset(out, 0, size * sizeof(S));
  AddRows(cov, size, x, out, size);
  for (int64_t u = 0; u < live; ++u) {
    S share = -Dot(x, waiting + u * size, size);
    AddRows(waiting + u * size, 1, &share, out, size);
  }
}

template <ffi::DataType D>
ffi::Error MultiplyCall(ffi::ThreadPool pool, ffi::Buffer<D> cov, ffi::Buffer<D> waiting, ffi::Buffer<ffi::S32> live,
                        ffi::Buffer<D> x, ffi::ResultBuffer<D> out) {
  using S = ffi::NativeType<D>;
  auto dims = x.dimensions(), kept = waiting.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2], room = kept[kept.size() - 2];
  Each(pool, live.element_count(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t k = i * rows; k < (i + 1) * rows; ++k)
        Times<S>(cov.typed_data() + i * size * size, waiting.typed_data() + i * room * size, live.typed_data()[i],
                 x.typed_data() + k * size, out->typed_data() + k * size, size);
  });
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
  Each(pool, live.element_count(), [&](int64_t first, int64_t last) {
    std::vector<S> holds(size);
    for (int64_t i = first; i < last; ++i) {
      S* matrix = folded->typed_data() + i * size * size;
      const S* corrections = waiting.typed_data() + i * room * size;
      for (int64_t j = 0; j < size * size; j += kLanes<S>) __builtin_prefetch(matrix + size * size + j, 1);
      if (folded->typed_data() != cov.typed_data())
        std::memcpy(matrix, cov.typed_data() + i * size * size, size * size * sizeof(S));
      if (fold.typed_data()[i])
        Fold<S>(matrix, corrections, fold.typed_data()[i], scale.typed_data()[i], limit.typed_data()[i], size, holds.data());
      for (int64_t k = i * rows; k < (i + 1) * rows; ++k)
        Times<S>(matrix, corrections, live.typed_data()[i], x.typed_data() + k * size, out->typed_data() + k * size, size);
      Gram<S>(x.typed_data() + i * rows * size, out->typed_data() + i * rows * size, rows, size,
              gram->typed_data() + i * rows * rows);
    }
  });
  return ffi::Error::Success();
}

// The rows `down / root` become rows used, used + 1, ... of U; what is not finite becomes zero.
template <ffi::DataType D>
ffi::Error WaitCall(ffi::ThreadPool pool, ffi::Buffer<D> waiting, ffi::Buffer<D> down, ffi::Buffer<ffi::S32> used,
                    ffi::Buffer<D> scale, ffi::ResultBuffer<D> out) {
  using S = ffi::NativeType<D>;
  auto dims = down.dimensions(), kept = waiting.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2], room = kept[kept.size() - 2];
  Each(pool, used.element_count(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      S* corrections = out->typed_data() + i * room * size;
      if (out->typed_data() != waiting.typed_data())
        std::memcpy(corrections, waiting.typed_data() + i * room * size, room * size * sizeof(S));
      S* to = corrections + std::min<int64_t>(used.typed_data()[i], room - rows) * size;
      const S* from = down.typed_data() + i * rows * size;
      S factor = 1 / std::sqrt(scale.typed_data()[i]);
      for (int64_t j = 0; j < rows * size; ++j) to[j] = std::isfinite(from[j]) ? from[j] * factor : S(0);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

#define WAIT(NAME, D)                                                                            \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, WaitCall<D>,                                               \
                                ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<D>>()       \
                                    .Arg<ffi::Buffer<D>>().Arg<ffi::Buffer<ffi::S32>>()             \
                                    .Arg<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>())

// One kind of number for each compilation (native.py).
#ifdef NATKAL_F32
NATKAL_MULTIPLY(natkal_small_multiply_f32, ffi::F32);
NATKAL_ADVANCE(natkal_small_advance_f32, ffi::F32);
WAIT(natkal_small_wait_f32, ffi::F32);
#endif
#ifdef NATKAL_F64
NATKAL_MULTIPLY(natkal_small_multiply_f64, ffi::F64);
NATKAL_ADVANCE(natkal_small_advance_f64, ffi::F64);
WAIT(natkal_small_wait_f64, ffi::F64);
#endif
