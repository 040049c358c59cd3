// Many small symmetric matrices, each in full, for fleets of learners: C <- scale (C - U'U) in place and X C - (X U') U, one
// matrix after the other, each while it is in the first-level cache, on all threads; and the rows that wait.

#include <cmath>
#include <cstring>

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

template <typename S> inline void Add(S* __restrict to, S times, const S* __restrict row, int64_t size) {
  for (int64_t j = 0; j < size; ++j) to[j] += times * row[j];
}

template <typename S> inline S Dot(const S* __restrict left, const S* __restrict right, int64_t size) {
  S total = 0;
  for (int64_t j = 0; j < size; ++j) total += left[j] * right[j];
  return total;
}

// C <- scale (C - U'U), U the first `count` rows.
template <typename S>
inline void Fold(S* __restrict cov, const S* __restrict waiting, int64_t count, S scale, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    S* row = cov + i * size;
    for (int64_t u = 0; u < count; ++u) Add(row, -waiting[u * size + i], waiting + u * size, size);
    for (int64_t j = 0; j < size; ++j) row[j] *= scale;
  }
}

// out = x C - (x U') U for one row x, U the first `live` rows.
template <typename S>
inline void Times(const S* cov, const S* waiting, int64_t live, const S* x, S* out, int64_t size) {
  std::memset(out, 0, size * sizeof(S));
  for (int64_t i = 0; i < size; ++i) Add(out, x[i], cov + i * size, size);
  for (int64_t u = 0; u < live; ++u) Add(out, -Dot(x, waiting + u * size, size), waiting + u * size, size);
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
                       ffi::Buffer<D> scale, ffi::Buffer<ffi::S32> live, ffi::Buffer<D> x, ffi::ResultBuffer<D> folded,
                       ffi::ResultBuffer<D> out) {
  using S = ffi::NativeType<D>;
  auto dims = x.dimensions(), kept = waiting.dimensions();
  int64_t size = dims[dims.size() - 1], rows = dims[dims.size() - 2], room = kept[kept.size() - 2];
  Each(pool, live.element_count(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      S* matrix = folded->typed_data() + i * size * size;
      const S* corrections = waiting.typed_data() + i * room * size;
      if (folded->typed_data() != cov.typed_data())
        std::memcpy(matrix, cov.typed_data() + i * size * size, size * size * sizeof(S));
      if (fold.typed_data()[i]) Fold<S>(matrix, corrections, fold.typed_data()[i], scale.typed_data()[i], size);
      for (int64_t k = i * rows; k < (i + 1) * rows; ++k)
        Times<S>(matrix, corrections, live.typed_data()[i], x.typed_data() + k * size, out->typed_data() + k * size, size);
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

#define MULTIPLY(NAME, D)                                                                        \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, MultiplyCall<D>,                                           \
                                ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<D>>()       \
                                    .Arg<ffi::Buffer<D>>().Arg<ffi::Buffer<ffi::S32>>()             \
                                    .Arg<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>())
#define ADVANCE(NAME, D)                                                                         \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, AdvanceCall<D>,                                            \
                                ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<D>>()       \
                                    .Arg<ffi::Buffer<D>>().Arg<ffi::Buffer<ffi::S32>>()             \
                                    .Arg<ffi::Buffer<D>>().Arg<ffi::Buffer<ffi::S32>>()             \
                                    .Arg<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>())
#define WAIT(NAME, D)                                                                            \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, WaitCall<D>,                                               \
                                ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::Buffer<D>>()       \
                                    .Arg<ffi::Buffer<D>>().Arg<ffi::Buffer<ffi::S32>>()             \
                                    .Arg<ffi::Buffer<D>>().Ret<ffi::Buffer<D>>())

MULTIPLY(natkal_small_multiply_f32, ffi::F32);
MULTIPLY(natkal_small_multiply_f64, ffi::F64);
ADVANCE(natkal_small_advance_f32, ffi::F32);
ADVANCE(natkal_small_advance_f64, ffi::F64);
WAIT(natkal_small_wait_f32, ffi::F32);
WAIT(natkal_small_wait_f64, ffi::F64);
