// Attention over short sentences, forward and backward: all scores of a head at once, which stay in the nearest cache.
//
// Libraries cut scores into blocks for long sequences, and take most of their time to get ready where there are twenty
// words. Every head is computed by itself, and what is masked adds exactly nothing, so that nothing depends on padding.
// The structures have the layout of those in `ops/short.py`. Plain C on the outside.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 100'000;  // products; for fewer, waking one up costs more than it saves

// One sentence: where its queries and keys begin, and how many they are.
struct Sentence {
  int64_t b, query, key, T, S;  // b is the row of the tensors that it is in
};

// Rows of floats for each head of a batch, wherever they are.
struct Rows {
  float* data;
  int64_t batch, head, row;  // from one to the next, in floats

  float* of(int64_t b, int64_t first, int64_t h) const { return data + b * batch + first * row + h * head; }
};

struct Attention {
  int64_t B, H, G, T, S, K, V;  // H heads of queries share G of keys and values; K and V are multiples of 8
  float scale;
  int32_t causal;          // query t sees keys up to t; T = S
  const uint8_t* allowed;  // B × S: which keys may be seen; or null
  // Where each of B sentences begins that lie behind one another in one row of T queries and S keys, and where the last
  // ends; or null, then each row of the batch is a sentence.
  const int64_t *query_begins, *key_begins;
  Rows query, key, value, output;
  float* totals;  // B × T × H × 2: the largest score of each query, and one over the sum of the exponentials

  int64_t scores() const { return H * (query_begins ? T * S / B : B * T * S); }  // about

  Sentence sentence(int64_t n) const {
    if (!query_begins) return {n, 0, 0, T, S};
    const int64_t *query = query_begins + n, *key = key_begins + n;
    return {0, query[0], key[0], query[1] - query[0], key[1] - key[0]};
  }
  float* totals_of(const Sentence& at, int64_t t, int64_t h) const {
    return totals + 2 * ((at.b * T + at.query + t) * H + h);
  }
};

struct Gradients {
  Rows output, query, key, value;
};

// Room for one thread, which grows to what is needed and is used again.
struct Room {
  std::vector<float> keys, values, weights, changes, mask, key_rows, value_rows, query_rows, change_rows;
};

// C (+)= A · B for R rows and 8 · C columns: A's numbers lie `row` and `column` apart.
template <int R, int C>
REGARD_AVX2 inline void product_block(const float* a, int64_t row, int64_t column, const float* b, int64_t b_row,
                                      int64_t inner, float* c, int64_t c_row, bool onto) {
  __m256 sums[R][C];  // unrolled, so that they stay in registers
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < C; ++n) sums[r][n] = onto ? _mm256_loadu_ps(c + r * c_row + 8 * n) : _mm256_setzero_ps();
  for (int64_t k = 0; k < inner; ++k, a += column, b += b_row) {
    __m256 right[C];
#pragma GCC unroll 2
    for (int n = 0; n < C; ++n) right[n] = _mm256_loadu_ps(b + 8 * n);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 left = _mm256_broadcast_ss(a + r * row);
#pragma GCC unroll 2
      for (int n = 0; n < C; ++n) sums[r][n] = _mm256_fmadd_ps(left, right[n], sums[r][n]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < C; ++n) _mm256_storeu_ps(c + r * c_row + 8 * n, sums[r][n]);
}

template <int R>
REGARD_AVX2 inline void product_rows(const float* a, int64_t row, int64_t column, const float* b, int64_t b_row,
                                     int64_t inner, int64_t N, float* c, int64_t c_row, bool onto) {
  int64_t n = 0;
  for (; n + 16 <= N; n += 16) product_block<R, 2>(a, row, column, b + n, b_row, inner, c + n, c_row, onto);
  if (n < N) product_block<R, 1>(a, row, column, b + n, b_row, inner, c + n, c_row, onto);
}

// C (M × N) (+)= A (M × inner) · B (inner × N); N is a multiple of 8.
REGARD_AVX2 void product(const float* a, int64_t row, int64_t column, const float* b, int64_t b_row, int64_t M,
                         int64_t inner, int64_t N, float* c, int64_t c_row, bool onto = false) {
  constexpr decltype(&product_rows<1>) kBlocks[] = {product_rows<1>, product_rows<2>, product_rows<3>,
                                                    product_rows<4>, product_rows<5>, product_rows<6>};
  const int64_t blocks = (M + 5) / 6;  // of about the same size: a last one of a row or two would take as long as six
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t m = M * block / blocks, rows = M * (block + 1) / blocks - m;
    kBlocks[rows - 1](a + m * row, row, column, b, b_row, inner, N, c + m * c_row, c_row, onto);
  }
}

// The X columns of S rows as rows, filled up to `wide` with zeros; X and `wide` are multiples of 8.
REGARD_AVX2 void transpose(const float* rows, int64_t row, int64_t S, int64_t X, int64_t wide, float* columns) {
  for (int64_t s = 0; s < wide; s += 8)
    for (int64_t x = 0; x < X; x += 8) {
      __m256i square[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        square[i] = _mm256_castps_si256(s + i < S ? _mm256_loadu_ps(rows + (s + i) * row + x) : _mm256_setzero_ps());
      turn(square);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) _mm256_storeu_ps(columns + (x + i) * wide + s, _mm256_castsi256_ps(square[i]));
    }
}

// S rows of X numbers close together. Where they are they may lie a power of two apart, and then only a few of them have
// room in the nearest cache at a time.
const float* together(const float* rows, int64_t row, int64_t S, int64_t X, std::vector<float>& room) {
  float* close = at_least(room, S * X);
  for (int64_t s = 0; s < S; ++s) std::copy(rows + s * row, rows + s * row + X, close + s * X);
  return close;
}

int64_t rounded(int64_t S) { return (S + 7) / 8 * 8; }

// What stands for the scores of a sentence: -∞ where a key may not be seen and where there is none, else 0 for the score itself.
const float* mask_of(const Attention& a, const Sentence& at, Room& room) {
  float* mask = at_least(room.mask, rounded(at.S));
  for (int64_t s = 0; s < rounded(at.S); ++s)
    mask[s] = s < at.S && (!a.allowed || a.allowed[at.b * a.S + s]) ? 0.0f : kNothing;
  return mask;
}

// Scaled and masked scores in the place of products, for eight keys from s on of the query at t.
REGARD_AVX2 inline __m256 score_of(const Attention& a, const float* products, const float* mask, int64_t t, int64_t s) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(products + s), _mm256_set1_ps(a.scale));
  // Put in its place, not added: a hidden score may be ∞, and ∞ - ∞ is not a number. The sign says which.
  const __m256 hidden = _mm256_loadu_ps(mask + s), score = _mm256_blendv_ps(scaled, hidden, hidden);
  if (!a.causal || s + 7 <= t) return score;
  const __m256 places = _mm256_add_ps(_mm256_set1_ps(static_cast<float>(s)), _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256 seen = _mm256_cmp_ps(places, _mm256_set1_ps(static_cast<float>(t)), _CMP_LE_OQ);
  return _mm256_blendv_ps(_mm256_set1_ps(kNothing), score, seen);
}

// e^(score - largest), and exactly 0 for what is masked.
REGARD_AVX2 inline __m256 weight_of(__m256 score, __m256 largest) {
  const __m256 masked = _mm256_cmp_ps(score, _mm256_set1_ps(kNothing), _CMP_EQ_OQ);
  return _mm256_andnot_ps(masked, exponential(_mm256_sub_ps(score, largest)));
}

REGARD_AVX2 void softmax(const Attention& a, const float* mask, int64_t t, int64_t wide, float* row, float* totals) {
  __m256 most = _mm256_set1_ps(kNothing);
  for (int64_t s = 0; s < wide; s += 8) {
    const __m256 score = score_of(a, row, mask, t, s);
    _mm256_storeu_ps(row + s, score);
    most = _mm256_max_ps(score, most);
  }
  const float largest = largest_of(most);
  if (largest == kNothing) {  // a query that sees nothing gets nothing, unless its scores are not even numbers
    bool number = true;
    for (int64_t s = 0; s < wide; ++s) number = number && !std::isnan(row[s]);
    totals[0] = 0.0f;
    totals[1] = number ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    return std::fill(row, row + wide, totals[1]);
  }
  const __m256 top = _mm256_set1_ps(largest);
  __m256 sum = _mm256_setzero_ps();
  for (int64_t s = 0; s < wide; s += 8) {
    const __m256 weight = weight_of(_mm256_loadu_ps(row + s), top);
    _mm256_storeu_ps(row + s, weight);
    sum = _mm256_add_ps(sum, weight);
  }
  const float inverse = 1.0f / sum_of(sum);
  const __m256 inverses = _mm256_set1_ps(inverse);
  for (int64_t s = 0; s < wide; s += 8)
    _mm256_storeu_ps(row + s, _mm256_mul_ps(_mm256_loadu_ps(row + s), inverses));
  totals[0] = largest;
  totals[1] = inverse;
}

// The heads of queries of one sentence that share keys and values.
REGARD_AVX2 void forward(const Attention& a, const Sentence& at, int64_t g, Room& room) {
  const auto [b, query_at, key_at, T, S] = at;
  const int64_t wide = rounded(S), shared = a.H / a.G;
  const float* mask = mask_of(a, at, room);
  float* keys = at_least(room.keys, a.K * wide);
  transpose(a.key.of(b, key_at, g), a.key.row, S, a.K, wide, keys);
  const float* value = together(a.value.of(b, key_at, g), a.value.row, S, a.V, room.value_rows);
  float* weights = at_least(room.weights, T * wide);
  for (int64_t h = g * shared; h < (g + 1) * shared; ++h) {
    product(a.query.of(b, query_at, h), a.query.row, 1, keys, wide, T, a.K, wide, weights, wide);
    for (int64_t t = 0; t < T; ++t) softmax(a, mask, t, wide, weights + t * wide, a.totals_of(at, t, h));
    float* output = a.output.of(b, query_at, h);
    product(weights, wide, 1, value, a.V, T, S, a.V, output, a.output.row);
  }
}

// The weights of a query again, in place of its products, and the changes of its scores in place of those of its weights.
REGARD_AVX2 void softmax_backward(const Attention& a, const float* mask, int64_t t, int64_t wide, float* row,
                                  float* change, const float* totals, float given) {
  const __m256 top = _mm256_set1_ps(totals[0]), inverse = _mm256_set1_ps(totals[1]);
  const __m256 mean = _mm256_set1_ps(given), scale = _mm256_set1_ps(a.scale);
  for (int64_t s = 0; s < wide; s += 8) {
    const __m256 weight = _mm256_mul_ps(weight_of(score_of(a, row, mask, t, s), top), inverse);
    const __m256 apart = _mm256_sub_ps(_mm256_loadu_ps(change + s), mean);
    _mm256_storeu_ps(row + s, weight);
    _mm256_storeu_ps(change + s, _mm256_mul_ps(_mm256_mul_ps(weight, apart), scale));
  }
}

REGARD_AVX2 void backward(const Attention& a, const Gradients& d, const Sentence& at, int64_t g, Room& room) {
  const auto [b, query_at, key_at, T, S] = at;
  const int64_t wide = rounded(S), shared = a.H / a.G;
  const float* mask = mask_of(a, at, room);
  const float* key = together(a.key.of(b, key_at, g), a.key.row, S, a.K, room.key_rows);
  float* keys = at_least(room.keys, a.K * wide);
  float* values = at_least(room.values, a.V * wide);
  transpose(key, a.K, S, a.K, wide, keys);
  transpose(a.value.of(b, key_at, g), a.value.row, S, a.V, wide, values);
  float* weights = at_least(room.weights, T * wide);
  float* changes = at_least(room.changes, T * wide);
  for (int64_t h = g * shared; h < (g + 1) * shared; ++h) {
    const bool onto = h > g * shared;
    const float* query = together(a.query.of(b, query_at, h), a.query.row, T, a.K, room.query_rows);
    const float* change = together(d.output.of(b, query_at, h), d.output.row, T, a.V, room.change_rows);
    const float* output = a.output.of(b, query_at, h);
    product(query, a.K, 1, keys, wide, T, a.K, wide, weights, wide);
    product(change, a.V, 1, values, wide, T, a.V, wide, changes, wide);
    for (int64_t t = 0; t < T; ++t) {
      const float given = dot(change + t * a.V, output + t * a.output.row, a.V);
      softmax_backward(a, mask, t, wide, weights + t * wide, changes + t * wide, a.totals_of(at, t, h), given);
    }
    product(weights, 1, wide, change, a.V, S, T, a.V, d.value.of(b, key_at, g), d.value.row, onto);
    product(changes, 1, wide, query, a.K, S, T, a.K, d.key.of(b, key_at, g), d.key.row, onto);
    product(changes, wide, 1, key, a.K, T, S, a.K, d.query.of(b, query_at, h), d.query.row);
  }
}

template <typename Work>
int for_each_group(const Attention& a, int64_t threads, const Work& work) {
  threads = std::min(threads, a.scores() * (a.K + a.V) / kWorthAThread);
  return guarded([&] {
    const auto some = [&](int64_t first, int64_t last) {
      static thread_local Room room;
      for (int64_t at = first; at < last; ++at) work(a.sentence(at / a.G), at % a.G, room);
    };
    in_parts(a.B * a.G, threads, some, &share_with_team);
  });
}

}  // namespace
}  // namespace regard

extern "C" {

int regard_attention(const regard::Attention* a, int64_t threads) {
  return regard::for_each_group(
      *a, threads, [=](const regard::Sentence& at, int64_t g, regard::Room& room) { regard::forward(*a, at, g, room); });
}

int regard_attention_backward(const regard::Attention* a, const regard::Gradients* d, int64_t threads) {
  return regard::for_each_group(*a, threads, [=](const regard::Sentence& at, int64_t g, regard::Room& room) {
    regard::backward(*a, *d, at, g, room);
  });
}
}
