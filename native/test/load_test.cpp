// What happens to weights between file and kernels: packed once and used again, quantised, summed up.
#include <cmath>
#include <memory>
#include <stdexcept>

#include "check.h"
#include "checksum.h"
#include "quantise.h"

namespace headway {

void test_packed_again() {
  for (Type type : {Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q4_0, Type::Q4_1, Type::Q5_0, Type::Q5_1, Type::Q4_K, Type::Q5_K, Type::Q6_K, Type::MXFP4}) {
    const auto bytes = random_tensor(type, 40, 256);
    const Matrix first = pack({type, 40, 256, bytes.data()});
    expect(first.bytes() == packed_bytes(type, 40, 256) && first.bytes() == first.memory.bytes(), "a packed matrix has the size that is foretold");
    const Matrix again = pack({type, 40, 256, nullptr, first.packed.data});
    expect(again && !again.memory && again.bytes() == first.bytes(), "what is packed already is not copied");
    std::vector<float> a(256), b(256);
    for (int row = 0; row < 40; row++) {
      unpack_row(first.packed, row, a.data()), unpack_row(again.packed, row, b.data());
      expect(a == b, "what is packed already has the same weights");
    }
  }
}

void test_quantise() {
  const std::vector<float> x = normal(40 * 96);
  for (const auto& [type, most] : {std::pair{Type::Q8_0, 0.02f}, {Type::Q4_1, 0.3f}}) {
    std::vector<std::uint8_t> out(row_bytes(type, 96) * 40);
    quantise({Type::F32, 40, 96, (const std::uint8_t*)x.data()}, type, out.data());
    const std::vector<float> y = to_floats({type, 40, 96, out.data()});
    float worst = 0;
    for (std::size_t i = 0; i < x.size(); i++) worst = std::max(worst, std::fabs(x[i] - y[i]));
    expect(worst < most, "quantised weights are near what they were");
  }
}

// Every code under every scale: exact, or refused where the scale would not be.
void test_mxfp4() {
  const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int exponent = 0; exponent < 256; exponent++) {
    std::uint8_t block[17] = {(std::uint8_t)exponent};
    for (int i = 0; i < 16; i++) block[1 + i] = (std::uint8_t)(i | (15 - i) << 4);
    const Tensor t{Type::MXFP4, 1, 32, block};
    const auto truth = [&](int i) { return std::ldexp(values[i & 7], exponent - 127) * (i & 8 ? -1 : 1); };
    const std::vector<float> read = to_floats(t);
    for (int i = 0; i < 16; i++) expect(read[(std::size_t)i] == truth(i) && read[(std::size_t)i + 16] == truth(15 - i), "an MXFP4 block is read exactly");
    const bool fits = exponent - 127 >= -23 && exponent - 127 <= 16;
    try {
      const Matrix m = pack(t);
      std::vector<float> packed(32);
      unpack_row(m.packed, 0, packed.data());
      expect(fits && packed == read, "an MXFP4 block is packed exactly");
    } catch (const std::invalid_argument&) {
      expect(!fits, "an MXFP4 block is refused only where its scale would be rounded");
    }
    std::memset(block + 1, 0x80, 16);
    expect(pack(t).packed.data != nullptr, "zeros have any scale");
  }
}

void test_checksum() {
  for (const std::size_t size : {0u, 1u, 7u, 63u, 64u, 65u, 200u}) {
    std::vector<std::uint8_t> data(size, 3);
    const std::uint64_t whole = checksum(data.data(), size);
    for (std::size_t i = 0; i < size; i++) {
      data[i] ^= 16;
      expect(checksum(data.data(), size) != whole, "a changed bit changes the checksum");
      data[i] ^= 16;
    }
    expect(size == 0 || checksum(data.data(), size - 1) != whole, "so does a missing byte");
    expect(checksum(data.data(), size) == whole, "the same bytes have the same checksum");
  }
}

// Memory of exactly the stated size, with any bits in it: what a damaged file brings as far as here. ASan watches the ends.
void test_hostile_weights() {
  std::mt19937 bits(11);
  for (int round = 0; round < 40; round++)
    for (Type type : {Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q4_0, Type::Q4_1, Type::Q5_0, Type::Q5_1, Type::Q4_K, Type::Q5_K, Type::Q6_K}) {
      const bool is_float = type == Type::F32 || type == Type::F16 || type == Type::BF16;
      const int rows = 1 + (int)(bits() % 40), columns = is_float ? 1 + (int)(bits() % 70) : 256 * (1 + (int)(bits() % 2));
      const std::size_t size = row_bytes(type, columns) * (std::size_t)rows;
      const std::unique_ptr<std::uint8_t[]> raw(new std::uint8_t[size]);
      for (std::size_t i = 0; i < size; i++) raw[i] = (std::uint8_t)(bits() % 4 ? bits() : bits() % 2 ? 0xff : 0x7f);  // NaN and infinity are frequent
      const Tensor t{type, rows, columns, raw.get()};
      const Matrix m = pack(t);
      expect(m.bytes() == packed_bytes(type, rows, columns), "damaged weights are packed to the size that is foretold");
      std::vector<float> out((std::size_t)columns);
      for (int row = 0; row < rows; row++) unpack_row(m.packed, row, out.data());
      expect(to_floats(t).size() == (std::size_t)rows * (std::size_t)columns, "damaged weights can be read");
      if (columns % 32 || !is_float) continue;
      std::vector<std::uint8_t> small(row_bytes(Type::Q4_1, columns) * (std::size_t)rows);
      quantise(t, Type::Q4_1, small.data());
    }
  for (const auto& [type, columns] : {std::pair{Type::Q8_0, 31}, {Type::Q4_K, 255}, {Type::Q6_K, 32}, {Type::Q4_0, 1}}) try {
      (void)row_bytes(type, columns);
      expect(false, "a row of parts of blocks is refused");
    } catch (const std::invalid_argument&) {
    }
}

}  // namespace headway
