// Vectors of floats, as wide as the processor's registers.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

typedef int64_t Size;  // a number of elements: sizes, strides and positions

struct BFloat16 {
    uint16_t bits;  // the upper half of a float
};

static inline Floats all(float value) { return value - Floats{}; }

// If one is NaN, the second.
static inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

static inline Floats load(const float* from) {
    Floats values;
    memcpy(&values, from, sizeof values);
    return values;
}

static inline Floats load(const BFloat16* from) {
    Halves halves;
    memcpy(&halves, from, sizeof halves);
    return (Floats)(__builtin_convertvector(halves, Bits) << 16);
}

static inline Ints load(const bool* from) {
    Bytes bytes;
    memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, Ints);
}

static inline void store(float* to, Floats values) { memcpy(to, &values, sizeof values); }

// Rounds to the nearest, and to even in between, as torch does.
static inline void store(BFloat16* to, Floats values) {
    Bits bits = (Bits)values;
    Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    Bits nan = Bits{} + 0x7fc0;
    Halves halves = __builtin_convertvector(values == values ? rounded : nan, Halves);
    memcpy(to, &halves, sizeof halves);
}

// The first `n` (< LANES) values, followed by `other` ones.
template <class T>
static inline Floats load_some(const T* from, Size n, T other) {
    T padded[LANES];
    for (int i = 0; i < LANES; i++) padded[i] = i < n ? from[i] : other;
    return load(padded);
}

template <class T>
static inline void store_some(T* to, Floats values, Size n) {
    T padded[LANES];
    store(padded, values);
    memcpy(to, padded, n * sizeof(T));
}

static inline float one(float value) { return value; }

static inline float one(BFloat16 value) {
    uint32_t bits = (uint32_t)value.bits << 16;
    float whole;
    memcpy(&whole, &bits, sizeof whole);
    return whole;
}

static inline float sum(Floats values) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += values[i];
    return total;
}

static inline float largest(Floats values) {
    float most = values[0];
    for (int i = 1; i < LANES; i++) most = values[i] > most ? values[i] : most;
    return most;
}

static inline bool any(Ints mask) {
    uint64_t words[sizeof mask / 8], found = 0;
    memcpy(words, &mask, sizeof mask);
    for (uint64_t word : words) found |= word;
    return found;
}

// exp(x) for x <= 0, with an absolute error below 2e-7; 0 below about -88, and NaN of NaN.
//
// It is 2^k 2^f with an integer k and |f| <= 1/2. Adding 1.5 * 2^23 rounds to an integer, which the
// lowest bits of the sum hold. The polynomial is the Taylor series of e^(f ln 2).
static inline Floats exp_of_negative(Floats x) {
    Floats scaled = larger(all(-127.f), x * 1.44269504f);
    Floats shifted = scaled + 12582912.f;
    Floats f = scaled - (shifted - 12582912.f);
    Floats power = all(1.54035304e-4f);
    power = power * f + 1.33335581e-3f;
    power = power * f + 9.61812911e-3f;
    power = power * f + 5.55041087e-2f;
    power = power * f + 2.40226507e-1f;
    power = power * f + 6.93147181e-1f;
    power = power * f + 1.f;
    return (Floats)((Ints)power + ((Ints)shifted << 23));
}
