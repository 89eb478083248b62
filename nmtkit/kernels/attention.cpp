// Attention of the newest tokens to caches (equation 1).
//
// Keys are stored by columns, (B, H, K, room), and values by rows, (B, H, room, U): each product
// then reads vectors of neighbouring numbers, and its sums stay in registers.

#include <vector>

#include "vectors.h"

// Scores of N beams: (N, n_keys). Keys that the mask hides get the lowest number.
template <int N, class T>
static void score(const float* queries, const T* keys, const bool* mask, Size mask_stride,
                  Size d_k, Size room, Size n_keys, float* scores) {
    for (Size key = 0; key < n_keys; key += LANES) {
        Floats sums[N] = {};
        for (Size d = 0; d < d_k; d++) {
            Floats column = load(keys + d * room + key);
            for (int w = 0; w < N; w++) sums[w] += column * queries[w * d_k + d];
        }
        for (int w = 0; w < N; w++) {
            Ints is_seen = load(mask + w * mask_stride + key);
            store(scores + w * n_keys + key, is_seen != 0 ? sums[w] : all(-3e38f));
        }
    }
}

// exp(score - maximum), in place, and 1 / sum of these.
static float soften(float* scores, Size n_keys) {
    Floats most = all(-3e38f), total = {};
    for (Size key = 0; key < n_keys; key += LANES) most = larger(load(scores + key), most);
    float maximum = largest(most);
    for (Size key = 0; key < n_keys; key += LANES) {
        Floats weights = exp_of_negative(load(scores + key) - maximum);
        store(scores + key, weights);
        total += weights;
    }
    return 1 / sum(total);
}

// Values (n_keys, U) weighted by (N, n_keys): `width` columns of N rows of `out`.
template <int N, class T>
static void mix(const float* weights, const float* factors, const T* values, Size d_v, Size n_keys,
                Size width, T* out, Size out_stride) {
    Floats sums[N] = {};
    for (Size key = 0; key < n_keys; key++) {
        const T* row = values + key * d_v;
        Floats some = width == LANES ? load(row) : load_some(row, width, T{});
        for (int w = 0; w < N; w++) sums[w] += some * weights[w * n_keys + key];
    }
    for (int w = 0; w < N; w++) {
        Floats mixed = sums[w] * factors[w];
        if (width == LANES)
            store(out + w * out_stride, mixed);
        else
            store_some(out + w * out_stride, mixed, width);
    }
}

// N beams of one head of one sentence.
template <int N, class T>
static void attend_some(const T* queries, Size query_stride, const T* keys, const T* values,
                        const bool* mask, Size mask_stride, T* out, Size out_stride, Size d_k,
                        Size d_v, Size room, Size n_keys, float* scaled, float* scores) {
    float scale = 1 / std::sqrt((float)d_k), factors[N];
    for (int w = 0; w < N; w++)
        for (Size d = 0; d < d_k; d++)
            scaled[w * d_k + d] = one(queries[w * query_stride + d]) * scale;
    score<N>(scaled, keys, mask, mask_stride, d_k, room, n_keys, scores);
    for (int w = 0; w < N; w++) factors[w] = soften(scores + w * n_keys, n_keys);
    for (Size u = 0; u < d_v; u += LANES) {
        Size width = d_v - u < LANES ? d_v - u : LANES;
        mix<N>(scores, factors, values + u, d_v, n_keys, width, out + u, out_stride);
    }
}

template <class T>
static void attend(const T* queries, Size query_stride, const T* keys, const T* values,
                   const bool* mask, Size sentence_stride, Size beam_stride, T* out,
                   Size n_sentences, Size n_beams, Size heads, Size d_k, Size d_v, Size room,
                   Size n_keys) {
    std::vector<float> space(4 * (d_k + n_keys));
    float *scaled = space.data(), *scores = scaled + 4 * d_k;
    Size out_stride = heads * d_v;
    for (Size b = 0; b < n_sentences; b++)
        for (Size h = 0; h < heads; h++) {
            const T* k = keys + (b * heads + h) * d_k * room;
            const T* v = values + (b * heads + h) * room * d_v;
            for (Size w = 0; w < n_beams; w += 4) {
                const T* q = queries + (b * n_beams + w) * query_stride + h * d_k;
                const bool* m = mask + b * sentence_stride + w * beam_stride;
                T* o = out + (b * n_beams + w) * out_stride + h * d_v;
                auto* some = n_beams - w >= 4   ? attend_some<4, T>
                             : n_beams - w == 3 ? attend_some<3, T>
                             : n_beams - w == 2 ? attend_some<2, T>
                                                : attend_some<1, T>;
                some(q, query_stride, k, v, m, beam_stride, o, out_stride, d_k, d_v, room, n_keys,
                     scaled, scores);
            }
        }
}

// Write the keys and values of the newest tokens as entries `first` to `first + n_beams - 1`.
template <class T>
static void append(const T* new_keys, const T* new_values, Size stride, T* keys, T* values,
                   Size first, Size n_sentences, Size n_beams, Size heads, Size d_k, Size d_v,
                   Size room) {
    for (Size b = 0; b < n_sentences; b++)
        for (Size h = 0; h < heads; h++) {
            T* k = keys + (b * heads + h) * d_k * room + first;
            T* v = values + ((b * heads + h) * room + first) * d_v;
            for (Size w = 0; w < n_beams; w++) {
                const T* from = new_keys + (b * n_beams + w) * stride + h * d_k;
                for (Size d = 0; d < d_k; d++) k[d * room + w] = from[d];
                memcpy(v + w * d_v, new_values + (b * n_beams + w) * stride + h * d_v,
                       d_v * sizeof(T));
            }
        }
}

// Move the `entries` (B, n), the first `counts` of which ascend, to the front.
template <class T>
static void select(T* keys, T* values, const int64_t* entries, const int64_t* counts, Size n,
                   Size n_sentences, Size heads, Size d_k, Size d_v, Size room) {
    for (Size b = 0; b < n_sentences; b++) {
        const int64_t* of = entries + b * n;
        Size first = 0, stop = counts[b];
        while (first < stop && of[first] == first) first++;
        if (first == stop) continue;
        for (Size row = b * heads * d_k; row < (b + 1) * heads * d_k; row++)
            for (Size i = first; i < stop; i++) keys[row * room + i] = keys[row * room + of[i]];
        for (Size h = b * heads; h < (b + 1) * heads; h++)
            for (Size i = first; i < stop; i++)
                memcpy(values + (h * room + i) * d_v, values + (h * room + of[i]) * d_v,
                       d_v * sizeof(T));
    }
}

// Move sentences of a cache, each of `width` elements.
template <class T>
static void move(T* cache, const int64_t* to, const int64_t* from, Size n, Size width) {
    for (Size i = 0; i < n; i++)
        memcpy(cache + to[i] * width, cache + from[i] * width, width * sizeof(T));
}

#define KERNELS_OF(NAME, T)                                                                       \
    extern "C" void attend_##NAME(const T* queries, Size query_stride, const T* keys,             \
                                  const T* values, const bool* mask, Size sentence_stride,        \
                                  Size beam_stride, T* out, Size n_sentences, Size n_beams,       \
                                  Size heads, Size d_k, Size d_v, Size room, Size n_keys) {       \
        attend(queries, query_stride, keys, values, mask, sentence_stride, beam_stride, out,      \
               n_sentences, n_beams, heads, d_k, d_v, room, n_keys);                              \
    }                                                                                             \
    extern "C" void append_##NAME(const T* new_keys, const T* new_values, Size stride, T* keys,   \
                                  T* values, Size first, Size n_sentences, Size n_beams,          \
                                  Size heads, Size d_k, Size d_v, Size room) {                    \
        append(new_keys, new_values, stride, keys, values, first, n_sentences, n_beams, heads,    \
               d_k, d_v, room);                                                                   \
    }                                                                                             \
    extern "C" void select_##NAME(T* keys, T* values, const int64_t* entries,                     \
                                  const int64_t* counts, Size n, Size n_sentences, Size heads,    \
                                  Size d_k, Size d_v, Size room) {                                \
        select(keys, values, entries, counts, n, n_sentences, heads, d_k, d_v, room);             \
    }                                                                                             \
    extern "C" void move_##NAME(T* cache, const int64_t* to, const int64_t* from, Size n,         \
                                Size width) {                                                     \
        move(cache, to, from, n, width);                                                          \
    }

KERNELS_OF(float32, float)
KERNELS_OF(bfloat16, BFloat16)
