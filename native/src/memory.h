// Zeroed, 64-byte aligned memory that is touched only where it is used.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace headway {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t count) : count_(count) {
    const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes == 0) return;
#if defined(__linux__)
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    if (bytes >= kHuge) madvise(p, bytes, MADV_HUGEPAGE);
    data_ = (T*)p, bytes_ = bytes;
#else
    data_ = (T*)std::aligned_alloc(64, bytes), bytes_ = bytes;
    if (!data_) throw std::bad_alloc();
    for (std::size_t i = 0; i < bytes; i++) ((char*)data_)[i] = 0;
#endif
  }
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    swap(o);
    return *this;
  }
  ~Buffer() {
    if (!data_) return;
#if defined(__linux__)
    munmap((void*)data_, bytes_);
#else
    std::free(data_);
#endif
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  static constexpr std::size_t kHuge = 8u << 20;
  void swap(Buffer& o) noexcept {
    std::swap(data_, o.data_), std::swap(count_, o.count_), std::swap(bytes_, o.bytes_);
  }
  T* data_ = nullptr;
  std::size_t count_ = 0, bytes_ = 0;
};

}  // namespace headway
