// The softmax over the vocabulary, and the most probable continuations of a sentence's beams.

#include <vector>

#include "vectors.h"

constexpr int VECTORS = 8;               // of which each lane is a group
constexpr int GROUPS = VECTORS * LANES;  // token t belongs to group t % GROUPS

static inline BFloat16 infinitely_low(BFloat16) { return {0xff80}; }
static inline float infinitely_low(float) { return -INFINITY; }

template <class T>
static inline Floats load_of(const T* row, Size from, Size n) {
    return n - from >= LANES ? load(row + from) : load_some(row + from, n - from, infinitely_low(T{}));
}

// Log-probabilities (R, V) of `logits`; those of `forbidden` tokens become -inf afterwards.
template <class T>
static void log_softmax(const T* logits, float* out, Size n_rows, Size n_tokens,
                        const int64_t* forbidden, Size n_forbidden) {
    for (Size r = 0; r < n_rows; r++, logits += n_tokens, out += n_tokens) {
        Floats most[4] = {all(-INFINITY), all(-INFINITY), all(-INFINITY), all(-INFINITY)};
        for (Size i = 0; i < n_tokens; i += 4 * LANES)
            for (int j = 0; j < 4; j++)
                if (i + j * LANES < n_tokens)
                    most[j] = larger(load_of(logits, i + j * LANES, n_tokens), most[j]);
        float maximum = largest(larger(larger(most[0], most[1]), larger(most[2], most[3])));
        Floats sums[4] = {};
        for (Size i = 0; i < n_tokens; i += 4 * LANES)
            for (int j = 0; j < 4; j++)
                if (i + j * LANES < n_tokens)
                    sums[j] += exp_of_negative(load_of(logits, i + j * LANES, n_tokens) - maximum);
        float log_sum = std::log(sum((sums[0] + sums[1]) + (sums[2] + sums[3])));
        for (Size i = 0; i < n_tokens; i += LANES) {
            Floats log_probs = load_of(logits, i, n_tokens) - maximum - log_sum;
            if (n_tokens - i >= LANES)
                store(out + i, log_probs);
            else
                store_some(out + i, log_probs, n_tokens - i);
        }
        for (Size i = 0; i < n_forbidden; i++)
            if (forbidden[i] < n_tokens) out[forbidden[i]] = -INFINITY;
    }
}

// The n best, best first; of equal ones those of the first beam and then of the first token.
struct Best {
    Size n;
    float* values;
    int64_t *tokens, *parents;

    void offer(float value, int64_t token, int64_t parent) {
        if (!is_better(value, token, parent, n - 1)) return;
        Size i = n - 1;
        for (; i > 0 && is_better(value, token, parent, i - 1); i--) {
            values[i] = values[i - 1];
            tokens[i] = tokens[i - 1];
            parents[i] = parents[i - 1];
        }
        values[i] = value;
        tokens[i] = token;
        parents[i] = parent;
    }

    bool is_better(float value, int64_t token, int64_t parent, Size than) const {
        if (value != values[than]) return value > values[than];
        if (value == -INFINITY) return false;
        return parent != parents[than] ? parent < parents[than] : token < tokens[than];
    }
};

// The `n` best continuations (B, n) of beams with log-probabilities `live` (B, W), from those of the
// next token (B, W, V). One pass finds the maximum of each group. The n best continuations are in
// groups whose maximum is among the n greatest, so that only these are looked at again.
extern "C" void continuations_float32(const float* live, const float* log_probs,
                                      const bool* must_end, Size eos, Size n, Size n_sentences,
                                      Size n_beams, Size n_tokens, float* values, int64_t* tokens,
                                      int64_t* parents) {
    std::vector<float> maxima(n_beams * GROUPS), nth(n);
    for (Size b = 0; b < n_sentences; b++) {
        const float* of_beams = live + b * n_beams;
        const float* rows = log_probs + b * n_beams * n_tokens;
        Best best{n, values + b * n, tokens + b * n, parents + b * n};
        for (Size i = 0; i < n; i++) {
            best.values[i] = nth[i] = -INFINITY;
            best.tokens[i] = best.parents[i] = 0;
        }
        if (must_end && must_end[b]) {
            for (Size w = 0; w < n_beams; w++)
                best.offer(of_beams[w] + rows[w * n_tokens + eos], eos, w);
            continue;
        }
        for (Size w = 0; w < n_beams; w++) {
            const float* row = rows + w * n_tokens;
            Floats most[VECTORS];
            for (Floats& each : most) each = all(-INFINITY);
            Size i = 0;  // of a token
            for (; i + GROUPS <= n_tokens; i += GROUPS)
                for (int j = 0; j < VECTORS; j++)
                    most[j] = larger(load(row + i + j * LANES), most[j]);
            for (int j = 0; i < n_tokens; i += LANES, j++)
                most[j] = larger(load_of(row, i, n_tokens), most[j]);
            for (int j = 0; j < VECTORS; j++) {
                most[j] += of_beams[w];
                store(&maxima[w * GROUPS + j * LANES], most[j]);
                if (!any(most[j] > nth[n - 1])) continue;
                for (int lane = 0; lane < LANES; lane++) {
                    float value = most[j][lane];
                    if (!(value > nth[n - 1])) continue;
                    Size k = n - 1;
                    for (; k > 0 && value > nth[k - 1]; k--) nth[k] = nth[k - 1];
                    nth[k] = value;
                }
            }
        }
        for (Size w = 0; w < n_beams; w++)
            for (Size group = 0; group < GROUPS; group++)
                if (maxima[w * GROUPS + group] >= nth[n - 1])
                    for (Size token = group; token < n_tokens; token += GROUPS)
                        best.offer(of_beams[w] + rows[w * n_tokens + token], token, w);
    }
}

extern "C" void log_softmax_float32(const float* logits, float* out, Size n_rows, Size n_tokens,
                                    const int64_t* forbidden, Size n_forbidden) {
    log_softmax(logits, out, n_rows, n_tokens, forbidden, n_forbidden);
}

extern "C" void log_softmax_bfloat16(const BFloat16* logits, float* out, Size n_rows,
                                     Size n_tokens, const int64_t* forbidden, Size n_forbidden) {
    log_softmax(logits, out, n_rows, n_tokens, forbidden, n_forbidden);
}
