// The compute threads of one engine.
//
// A loop's items are claimed one chunk at a time from one atomic word, and a loop ends when all its items are done,
// not when all threads have arrived: a thread that the system has put to sleep holds up at most the chunk it claimed.
//
// Why it is safe. `ticket_` holds (epoch, next item) in one word; between loops it says "closed" (next item 2^32 - 1). A
// thread reads the word, then the loop's size, then the rest of the loop, then claims by compare-and-swap on the whole
// word. A new loop is described only after the word was closed, and its size is stored with release: a thread that
// sees a new size therefore also sees the word closed, or newer, so its swap of an older word fails. A swap that
// succeeds thus proves that the loop was open from the read to the swap, and that what was read belongs to it. Work
// before `run` happens before the items (release on the ticket, acquire at its read); the items happen before `run`
// returns (release on `done_`, acquire at its read).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace headway {

class Threads {
 public:
  // Throws std::system_error if the system does not give so many.
  explicit Threads(int count) {
    try {
      for (int i = 1; i < count; i++) threads_.emplace_back([this, i] { serve(i); });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Threads() { stop(); }

  int count() const { return (int)threads_.size() + 1; }

  // Between begin and end the threads spin for work; outside they sleep.
  void begin() {
    if (threads_.empty()) return;
    {
      std::lock_guard lock(mutex_);
      active_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
  }
  void end() { active_.store(false, std::memory_order_relaxed); }

  // begin() now, end() however the scope is left.
  class Session {
   public:
    explicit Session(Threads& threads) : threads_(threads) { threads_.begin(); }
    ~Session() { threads_.end(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    Threads& threads_;
  };

  // Calls body(item, thread) for each item in [0, items), `chunk` items to a claim; returns when all are done.
  template <class Body>
  void run(int items, int chunk, const Body& body) {
    if (items <= 0) return;
    if (threads_.empty() || items <= chunk) {
      for (int i = 0; i < items; i++) body(i, 0);
      return;
    }
    call_.store([](const void* b, int item, int thread) { (*(const Body*)b)(item, thread); }, std::memory_order_relaxed);
    body_.store(&body, std::memory_order_relaxed);
    chunk_.store(chunk, std::memory_order_relaxed);
    items_.store(items, std::memory_order_release);
    done_.store(0, std::memory_order_relaxed);
    const std::uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(epoch << 32, std::memory_order_release);
    while (claim(0)) {
    }
    for (Patience patience; done_.load(std::memory_order_acquire) < items;) patience.wait();
    ticket_.store(epoch << 32 | kClosed, std::memory_order_release);
  }

 private:
  using Call = void (*)(const void*, int, int);
  static constexpr std::uint64_t kClosed = 0xffffffffull;

  // Waits a little: at first by spinning, since most waits are shorter than a system call, then by giving the core away,
  // since what is waited for may be a thread that the system has put to sleep on it.
  class Patience {
   public:
    void wait() {
      if (++turns_ > kSpins) {
        std::this_thread::yield();
        return;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    void renew() { turns_ = 0; }

   private:
    static constexpr int kSpins = 400;  // some 10 us
    int turns_ = 0;
  };

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      active_.store(false, std::memory_order_relaxed);
    }
    wake_.notify_all();
    for (auto& t : threads_) t.join();
  }

  bool claim(int thread) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    const std::uint64_t next = ticket & kClosed;
    const int items = items_.load(std::memory_order_acquire);
    const int chunk = chunk_.load(std::memory_order_relaxed);
    const Call call = call_.load(std::memory_order_relaxed);
    const void* body = body_.load(std::memory_order_relaxed);
    if (next >= (std::uint64_t)items) return false;
    const int from = (int)next;
    const int to = from + chunk < items ? from + chunk : items;
    if (!ticket_.compare_exchange_strong(ticket, (ticket & ~kClosed) | (unsigned)to, std::memory_order_acq_rel))
      return true;
    for (int i = from; i < to; i++) call(body, i, thread);
    done_.fetch_add(to - from, std::memory_order_release);
    return true;
  }

  void serve(int thread) {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_ || active_.load(std::memory_order_relaxed); });
        if (stop_) return;
      }
      Patience patience;
      while (active_.load(std::memory_order_relaxed)) {
        if (claim(thread)) patience.renew();
        else patience.wait();
      }
    }
  }

  alignas(64) std::atomic<std::uint64_t> ticket_{kClosed};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<Call> call_{nullptr};
  std::atomic<const void*> body_{nullptr};
  std::atomic<int> items_{0}, chunk_{1};
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace headway
