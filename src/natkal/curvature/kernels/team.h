// What the compiled kernels share: vectors, memory that stays, and threads that stay awake between calls.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace natkal {

template <typename S> struct Simd { typedef S V __attribute__((vector_size(64), aligned(sizeof(S)), may_alias)); };
template <typename S> constexpr int64_t kLanes = 64 / sizeof(S);

// The sum of a vector's lanes, by halves.
template <typename S> inline S LaneSum(typename Simd<S>::V v) {
  typedef S Half __attribute__((vector_size(32), aligned(sizeof(S)), may_alias));
  typedef S Quarter __attribute__((vector_size(16), aligned(sizeof(S)), may_alias));
  const Half* halves = reinterpret_cast<const Half*>(&v);
  Half half = halves[0] + halves[1];
  const Quarter* quarters = reinterpret_cast<const Quarter*>(&half);
  Quarter quarter = quarters[0] + quarters[1];
  S total = quarter[0] + quarter[1];
  for (int64_t i = 2; i < kLanes<S> / 4; ++i) total += quarter[i];
  return total;
}

// left . right, both of `size` numbers.
template <typename S> inline S Dot(const S* left, const S* right, int64_t size) {
  using V = typename Simd<S>::V;
  typedef S Quarter __attribute__((vector_size(16), aligned(sizeof(S)), may_alias));
  V wide[2] = {};
  Quarter narrow = {};
  int64_t j = 0;
  for (; j + 2 * kLanes<S> <= size; j += 2 * kLanes<S>)
#pragma GCC unroll 2
    for (int w = 0; w < 2; ++w)
      wide[w] += reinterpret_cast<const V*>(left + j)[w] * reinterpret_cast<const V*>(right + j)[w];
  for (; j + kLanes<S> / 4 <= size; j += kLanes<S> / 4)
    narrow += *reinterpret_cast<const Quarter*>(left + j) * *reinterpret_cast<const Quarter*>(right + j);
  S total = LaneSum<S>(wide[0] + wide[1]);
  for (int64_t i = 0; i < kLanes<S> / 4; ++i) total += narrow[i];
  for (; j < size; ++j) total += left[j] * right[j];
  return total;
}

// gram (rows x rows) = x out', symmetric but for rounding: the lower half counts.
template <typename S> inline void Gram(const S* x, const S* out, int64_t rows, int64_t size, S* gram) {
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t l = 0; l <= k; ++l) gram[k * rows + l] = gram[l * rows + k] = Dot(x + k * size, out + l * size, size);
}

// What a variance is multiplied by on either side (limits.py): 1, and less where it is above the limit; false for 1.
template <typename S> inline bool Hold(S variance, S limit, S* hold) {
  bool over = variance > limit;
  *hold = over ? std::sqrt(limit / 2 / variance) : S(1);
  return over;
}

// Memory on a 64-byte boundary for one call, void at first; the next call gets the same, while it is still in the cache.
template <typename S> class Scratch {
 public:
  explicit Scratch(int64_t count) {
    size_t needed = (count * sizeof(S) + 63) / 64 * 64;
    {
      std::lock_guard<std::mutex> lock(Pool().mutex);
      std::swap(kept_, Pool().kept);
    }
    if (needed <= kept_.size) return;
    std::free(kept_.data);
    kept_ = {std::aligned_alloc(64, needed), needed};
  }
  ~Scratch() {
    {
      std::lock_guard<std::mutex> lock(Pool().mutex);
      if (kept_.size > Pool().kept.size) std::swap(kept_, Pool().kept);
    }
    std::free(kept_.data);
  }
  Scratch(const Scratch&) = delete;
  S* data() { return static_cast<S*>(kept_.data); }

 private:
  struct Memory { void* data = nullptr; size_t size = 0; };
  struct Shared { std::mutex mutex; Memory kept; };
  static Shared& Pool() {
    static Shared* pool = new Shared;
    return *pool;
  }
  Memory kept_;
};

// Helpers that look out for the next call for a moment before they go to sleep: to wake a thread costs both sides tens of
// microseconds, as much as the work itself where p is about 1,000. While they look out they yield to anyone who has work.
class Team {
 public:
  static Team& Get() {
    static Team* team = new Team;  // never destroyed: helpers may outlive main()
    return *team;
  }

  // Runs work(0..parts-1) on up to `threads` threads, the caller among them; parts that no helper starts it does itself.
  void Run(int64_t parts, int64_t threads, const std::function<void(int64_t)>& work) {
    auto job = std::make_shared<Job>(&work, parts);
    int64_t helpers = std::min(parts, threads) - 1;
    if (helpers > 0) Post(job, helpers);
    job->Take();
    while (job->done.load(std::memory_order_acquire) < parts) std::this_thread::yield();
  }

 private:
  struct Job {
    Job(const std::function<void(int64_t)>* work, int64_t parts) : work(work), parts(parts) {}
    void Take() {
      for (int64_t part; (part = next.fetch_add(1)) < parts;) {
        (*work)(part);
        done.fetch_add(1, std::memory_order_release);
      }
    }
    const std::function<void(int64_t)>* work;  // alive while a part is not done
    const int64_t parts;
    std::atomic<int64_t> next{0}, done{0};
  };

  void Post(const std::shared_ptr<Job>& job, int64_t helpers) {
    bool asleep;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = job;
      posted_.fetch_add(1, std::memory_order_release);
      for (; started_ < helpers; ++started_) std::thread([this] { Help(); }).detach();
      asleep = sleeping_ > 0;
    }
    if (asleep) changed_.notify_all();
  }

  void Help() {
    uint64_t seen = 0;
    while (true) {
      auto until = std::chrono::steady_clock::now() + kPatience;
      while (posted_.load(std::memory_order_acquire) == seen && std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        ++sleeping_;
        changed_.wait(lock, [&] { return posted_.load() != seen; });
        --sleeping_;
        seen = posted_.load();
        job = job_;
      }
      job->Take();
    }
  }

  static constexpr std::chrono::microseconds kPatience{500};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Job> job_;
  std::atomic<uint64_t> posted_{0};
  int64_t started_ = 0, sleeping_ = 0;
};

template <typename F> void InParallel(xla::ffi::ThreadPool& pool, int64_t parts, const F& work) {
  if (parts == 1) return work(0);
  Team::Get().Run(parts, pool.num_threads(), work);
}

}  // namespace natkal

// The calls, for one kind of number each.
#define NATKAL_MULTIPLY(NAME, D)                                                                        \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, MultiplyCall<D>,                                                  \
                                xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()                       \
                                    .Arg<xla::ffi::Buffer<D>>().Arg<xla::ffi::Buffer<D>>()              \
                                    .Arg<xla::ffi::Buffer<xla::ffi::S32>>().Arg<xla::ffi::Buffer<D>>()  \
                                    .Ret<xla::ffi::Buffer<D>>())
#define NATKAL_ADVANCE(NAME, D)                                                                         \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(NAME, AdvanceCall<D>,                                                   \
                                xla::ffi::Ffi::Bind().Ctx<xla::ffi::ThreadPool>()                       \
                                    .Arg<xla::ffi::Buffer<D>>().Arg<xla::ffi::Buffer<D>>()              \
                                    .Arg<xla::ffi::Buffer<xla::ffi::S32>>().Arg<xla::ffi::Buffer<D>>()  \
                                    .Arg<xla::ffi::Buffer<xla::ffi::S32>>().Arg<xla::ffi::Buffer<D>>()  \
                                    .Arg<xla::ffi::Buffer<D>>()                                         \
                                    .Ret<xla::ffi::Buffer<D>>().Ret<xla::ffi::Buffer<D>>()              \
                                    .Ret<xla::ffi::Buffer<D>>())
