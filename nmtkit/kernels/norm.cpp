// Layer normalization of a sum (sections 3.1, 5.4).

#include <vector>

#include "vectors.h"

// LayerNorm(x + y) of rows of `width` numbers, with sums in float32.
template <class T>
static void add_norm(const T* x, const T* y, const T* weight, const T* bias, T* out, Size n_rows,
                     Size width, float epsilon) {
    Size n_whole = width - width % LANES, n_more = width - n_whole;
    std::vector<float> row(n_whole + LANES), gains(row.size()), shifts(row.size());
    for (Size i = 0; i < width; i++) {
        gains[i] = one(weight[i]);
        shifts[i] = one(bias[i]);
    }
    for (Size r = 0; r < n_rows; r++, x += width, y += width, out += width) {
        Floats total = {}, squares = {};
        for (Size i = 0; i < n_whole; i += LANES) {
            Floats added = load(x + i) + load(y + i);
            store(&row[i], added);
            total += added;
        }
        for (Size i = n_whole; i < width; i++) row[i] = one(x[i]) + one(y[i]);
        if (n_more) total += load_some(&row[n_whole], n_more, 0.f);
        float mean = sum(total) / width;
        for (Size i = 0; i < n_whole; i += LANES) {
            Floats centered = load(&row[i]) - mean;
            squares += centered * centered;
        }
        if (n_more) {
            Floats centered = load_some(&row[n_whole], n_more, mean) - mean;
            squares += centered * centered;
        }
        float factor = 1 / std::sqrt(sum(squares) / width + epsilon);
        for (Size i = 0; i < width; i += LANES) {
            Floats normal = (load(&row[i]) - mean) * factor;
            Floats scaled = normal * load(&gains[i]) + load(&shifts[i]);
            if (i < n_whole)
                store(out + i, scaled);
            else
                store_some(out + i, scaled, n_more);
        }
    }
}

extern "C" void add_norm_float32(const float* x, const float* y, const float* weight,
                                 const float* bias, float* out, Size n_rows, Size width,
                                 float epsilon) {
    add_norm(x, y, weight, bias, out, n_rows, width, epsilon);
}

extern "C" void add_norm_bfloat16(const BFloat16* x, const BFloat16* y, const BFloat16* weight,
                                  const BFloat16* bias, BFloat16* out, Size n_rows, Size width,
                                  float epsilon) {
    add_norm(x, y, weight, bias, out, n_rows, width, epsilon);
}
