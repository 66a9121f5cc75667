// Attention over short sequences, and over long ones with a window or a bias by distance, forward and backward.
//
// Short sequences: all scores of a head at once, which stay in the nearest cache. Libraries compute scores in blocks for long
// sequences, and take most of their time to get ready where there are twenty tokens. Long sequences: a tile of queries at a
// time, over the keys within its reach. Every head is computed by itself, and what is masked adds exactly nothing, so that
// nothing depends on padding.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "errors.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "structs.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kMinProducts = 100'000;  // for each thread; for fewer, waking one up costs more than it saves

constexpr int64_t kTile = 64;              // queries of a long sequence that are computed together
constexpr int64_t kMinSpan = 8 * kTile;    // queries of a long sequence that one thread has at least

// Where the queries and keys of a sequence, or of a part of it, begin, and how many they are.
struct Sequence {
  int64_t b, query, key, T, S;  // b is the row of the tensors that it is in
};

Sequence sequence_at(const Attention& a, int64_t n) {
  if (!a.query_cu_seqlens) return {n, 0, 0, a.T, a.S};
  const int64_t *query = a.query_cu_seqlens + n, *key = a.key_cu_seqlens + n;
  return {0, query[0], key[0], query[1] - query[0], key[1] - key[0]};
}

// The queries from `query` on, up to a tile of them, and the keys within their reach.
Sequence tile_at(const Attention& a, int64_t b, int64_t query) {
  const int64_t T = std::min(kTile, a.T - query), end = query + T;
  const int64_t key = a.window ? std::max<int64_t>(0, query - a.window) : 0;
  const int64_t last = a.causal ? end : a.window ? std::min(a.S, end + a.window) : a.S;
  return {b, query, key, T, last - key};
}

bool is_tiled(const Attention& a) { return !a.query_cu_seqlens && a.T > kTile; }

float* stats_at(const Attention& a, const Sequence& at, int64_t t, int64_t h) {
  return a.softmax_stats + 2 * ((at.b * a.T + at.query + t) * a.H + h);
}

// What belongs to one query: which keys of its sequence it may attend to, and the bias of the first of them.
struct Query {
  int64_t first, last;  // keys from first on, up to last
  const float* bias;    // or null
  float* bias_gradient;
};

Query query_of(const Attention& a, const Sequence& at, int64_t t, int64_t h, float* bias_gradient = nullptr) {
  const int64_t shift = a.query_cu_seqlens ? 0 : at.query - at.key, wide = round_up(at.S, kLanes), stand = t + shift;
  const int64_t distance = a.T - 1 - stand;  // that of the first key, counted from the smallest that there is
  return {a.window ? std::max<int64_t>(0, stand - a.window) : 0,
          a.causal ? stand + 1 : a.window ? std::min(wide, stand + a.window + 1) : wide,
          a.bias ? a.bias + h * a.bias_stride + distance : nullptr,
          bias_gradient ? bias_gradient + (at.b * a.H + h) * a.bias_stride + distance : nullptr};
}

// Buffers of one thread.
struct Workspace {
  std::vector<float> keys, values, weights, grads, mask, key_rows, value_rows, query_rows, grad_rows;
};

// C (+)= A · B for R rows and 8 · C columns: A's numbers are `row` and `column` apart.
template <int R, int C>
REGARD_INLINE void matmul_block(const float* a, int64_t row, int64_t column, const float* b, int64_t b_row, int64_t inner,
                                float* c, int64_t c_row, bool accumulate) {
  Vec sums[R][C];  // unrolled, so that they stay in registers
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < C; ++n) sums[r][n] = accumulate ? Vec::load(c + r * c_row + kLanes * n) : Vec::zero();
  for (int64_t k = 0; k < inner; ++k, a += column, b += b_row) {
    Vec right[C];
#pragma GCC unroll 2
    for (int n = 0; n < C; ++n) right[n] = Vec::load(b + kLanes * n);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Vec left = Vec::all(a + r * row);
#pragma GCC unroll 2
      for (int n = 0; n < C; ++n) sums[r][n] = fmadd(left, right[n], sums[r][n]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int n = 0; n < C; ++n) sums[r][n].store(c + r * c_row + kLanes * n);
}

template <int R>
REGARD_AVX2 void matmul_rows(const float* a, int64_t row, int64_t column, const float* b, int64_t b_row, int64_t inner,
                             int64_t N, float* c, int64_t c_row, bool accumulate) {
  int64_t n = 0;
  for (; n + 2 * kLanes <= N; n += 2 * kLanes)
    matmul_block<R, 2>(a, row, column, b + n, b_row, inner, c + n, c_row, accumulate);
  if (n < N) matmul_block<R, 1>(a, row, column, b + n, b_row, inner, c + n, c_row, accumulate);
}

// C (M × N) (+)= A (M × inner) · B (inner × N); N is a multiple of 8.
REGARD_AVX2 void matmul(const float* a, int64_t row, int64_t column, const float* b, int64_t b_row, int64_t M, int64_t inner,
                        int64_t N, float* c, int64_t c_row, bool accumulate = false) {
  constexpr decltype(&matmul_rows<1>) kByRows[] = {matmul_rows<1>, matmul_rows<2>, matmul_rows<3>,
                                                   matmul_rows<4>, matmul_rows<5>, matmul_rows<6>};
  const int64_t blocks = (M + 5) / 6;  // of about the same size: a last one of a row or two would take as long as six
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t m = M * block / blocks, rows = M * (block + 1) / blocks - m;
    kByRows[rows - 1](a + m * row, row, column, b, b_row, inner, N, c + m * c_row, c_row, accumulate);
  }
}

// The X columns of S rows as rows, filled up to `wide` with zeros; X and `wide` are multiples of 8.
REGARD_AVX2 void transpose(const float* rows, int64_t row, int64_t S, int64_t X, int64_t wide, float* columns) {
  for (int64_t s = 0; s < wide; s += kLanes)
    for (int64_t x = 0; x < X; x += kLanes) {
      Vec square[kLanes];
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) square[i] = s + i < S ? Vec::load(rows + (s + i) * row + x) : Vec::zero();
      transpose(square);
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) square[i].store(columns + (x + i) * wide + s);
    }
}

// S rows of X numbers close together. Where they are they may be a power of two apart, and then only a few of them fit into
// the nearest cache at a time.
const float* contiguous(const float* rows, int64_t row, int64_t S, int64_t X, std::vector<float>& buffer) {
  float* copy = grown(buffer, S * X);
  for (int64_t s = 0; s < S; ++s) std::copy(rows + s * row, rows + s * row + X, copy + s * X);
  return copy;
}

// For the scores of a sequence: -∞ where a key may not be attended to and where there is none, else 0.
const float* key_mask(const Attention& a, const Sequence& at, Workspace& workspace) {
  const int64_t wide = round_up(at.S, kLanes);
  float* mask = grown(workspace.mask, wide);
  for (int64_t s = 0; s < wide; ++s)
    mask[s] = s < at.S && (!a.allowed || a.allowed[at.b * a.S + at.key + s]) ? 0.0f : kMinusInfinity;
  return mask;
}

// Scaled and masked scores in the place of products, for eight keys from s on.
REGARD_INLINE Vec masked_score(const Attention& a, const float* products, const float* mask, const Query& q, int64_t s) {
  Vec scaled = Vec::load(products + s) * Vec::all(a.scale);
  if (q.bias) scaled = scaled + Vec::load(q.bias + s);
  // Replaced, not added: a masked score may be ∞, and ∞ - ∞ is NaN.
  const Vec score = replaced_by_negative(scaled, Vec::load(mask + s));
  if (s >= q.first && s + kLanes <= q.last) return score;
  const Vec positions = Vec::all(static_cast<float>(s)) + Vec::iota(), none = Vec::all(kMinusInfinity);
  const Vec late_enough = where(at_least(positions, Vec::all(static_cast<float>(q.first))), score, none);
  return where(at_most(positions, Vec::all(static_cast<float>(q.last - 1))), late_enough, none);
}

REGARD_AVX2 void softmax(const Attention& a, const float* mask, const Query& q, int64_t wide, float* row, float* stats) {
  Vec most = Vec::all(kMinusInfinity);
  for (int64_t s = 0; s < wide; s += kLanes) {
    const Vec score = masked_score(a, row, mask, q, s);
    score.store(row + s);
    most = max(score, most);
  }
  const float largest = max_lane(most);
  if (largest == kMinusInfinity) {  // a query that may attend to nothing gets zeros, unless its scores are NaN
    const bool nan = std::any_of(row, row + wide, [](float score) { return std::isnan(score); });
    stats[0] = 0.0f;
    stats[1] = nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    return std::fill(row, row + wide, stats[1]);
  }
  const float inverse = 1.0f / exponentials(row, wide, largest, kOnlyMasked);
  const Vec inverses = Vec::all(inverse);
  for (int64_t s = 0; s < wide; s += kLanes) (Vec::load(row + s) * inverses).store(row + s);
  stats[0] = largest;
  stats[1] = inverse;
}

// The query heads of one sequence that share keys and values.
REGARD_AVX2 void forward(const Attention& a, const Sequence& at, int64_t g, Workspace& workspace) {
  const auto [b, query_at, key_at, T, S] = at;
  const int64_t wide = round_up(S, kLanes), shared = a.H / a.G;
  const float* mask = key_mask(a, at, workspace);
  float* keys = grown(workspace.keys, a.K * wide);
  transpose(a.key.at(b, key_at, g), a.key.row_stride, S, a.K, wide, keys);
  const float* value = contiguous(a.value.at(b, key_at, g), a.value.row_stride, S, a.V, workspace.value_rows);
  float* weights = grown(workspace.weights, T * wide);
  for (int64_t h = g * shared; h < (g + 1) * shared; ++h) {
    matmul(a.query.at(b, query_at, h), a.query.row_stride, 1, keys, wide, T, a.K, wide, weights, wide);
    for (int64_t t = 0; t < T; ++t) softmax(a, mask, query_of(a, at, t, h), wide, weights + t * wide, stats_at(a, at, t, h));
    matmul(weights, wide, 1, value, a.V, T, S, a.V, a.output.at(b, query_at, h), a.output.row_stride);
  }
}

// The weights of a query again, in the place of its products, and the gradients of its scores in the place of those of its
// weights; `mean` is the sum of weight · gradient.
REGARD_AVX2 void softmax_backward(const Attention& a, const float* mask, const Query& q, int64_t wide, float* row, float* grad,
                                  const float* stats, float mean) {
  const Vec top = Vec::all(stats[0]), inverse = Vec::all(stats[1]), floor = Vec::all(kOnlyMasked);
  const Vec means = Vec::all(mean), scale = Vec::all(a.scale);
  for (int64_t s = 0; s < wide; s += kLanes) {
    const Vec weight = softmax_weight(masked_score(a, row, mask, q, s), top, floor) * inverse;
    const Vec centered = weight * (Vec::load(grad + s) - means);
    weight.store(row + s);
    (centered * scale).store(grad + s);
    if (q.bias_gradient) (Vec::load(q.bias_gradient + s) + centered).store(q.bias_gradient + s);
  }
}

REGARD_AVX2 void backward(const Attention& a, const AttentionGradients& d, const Sequence& at, int64_t g,
                          Workspace& workspace) {
  const auto [b, query_at, key_at, T, S] = at;
  const int64_t wide = round_up(S, kLanes), shared = a.H / a.G;
  const float* mask = key_mask(a, at, workspace);
  const float* key = contiguous(a.key.at(b, key_at, g), a.key.row_stride, S, a.K, workspace.key_rows);
  float* keys = grown(workspace.keys, a.K * wide);
  float* values = grown(workspace.values, a.V * wide);
  transpose(key, a.K, S, a.K, wide, keys);
  transpose(a.value.at(b, key_at, g), a.value.row_stride, S, a.V, wide, values);
  float* weights = grown(workspace.weights, T * wide);
  float* grads = grown(workspace.grads, T * wide);
  for (int64_t h = g * shared; h < (g + 1) * shared; ++h) {
    const bool accumulate = h > g * shared || is_tiled(a);  // other tiles have the same keys
    const float* query = contiguous(a.query.at(b, query_at, h), a.query.row_stride, T, a.K, workspace.query_rows);
    const float* grad = contiguous(d.output.at(b, query_at, h), d.output.row_stride, T, a.V, workspace.grad_rows);
    const float* output = a.output.at(b, query_at, h);
    matmul(query, a.K, 1, keys, wide, T, a.K, wide, weights, wide);
    matmul(grad, a.V, 1, values, wide, T, a.V, wide, grads, wide);
    for (int64_t t = 0; t < T; ++t) {
      const float mean = dot(grad + t * a.V, output + t * a.output.row_stride, a.V);
      softmax_backward(a, mask, query_of(a, at, t, h, d.bias), wide, weights + t * wide, grads + t * wide,
                       stats_at(a, at, t, h), mean);
    }
    matmul(weights, 1, wide, grad, a.V, S, T, a.V, d.value.at(b, key_at, g), d.value.row_stride, accumulate);
    matmul(grads, 1, wide, query, a.K, S, T, a.K, d.key.at(b, key_at, g), d.key.row_stride, accumulate);
    matmul(grads, wide, 1, key, a.K, T, S, a.K, d.query.at(b, query_at, h), d.query.row_stride);
  }
}

void check(const Attention& a) {
  require(a.B >= 0 && a.T >= 0 && a.S >= 0, "sizes must not be negative");
  require(a.G > 0 && a.H % a.G == 0, "query heads must be a multiple of key/value heads");
  require(a.K > 0 && a.V > 0 && a.K % kLanes == 0 && a.V % kLanes == 0, "the size of a head must be a multiple of 8");
  require(!a.causal || a.query_cu_seqlens || a.T == a.S, "causal attention needs as many queries as keys");
  require(a.window >= 0 && (!a.window || (a.T == a.S && !a.query_cu_seqlens)), "a window needs as many queries as keys");
  require(!a.bias || (a.T == a.S && !a.query_cu_seqlens), "a bias by distance needs as many queries as keys");
}

// How many threads the products are worth; about, where there are sequences of several lengths.
int64_t useful_threads(const Attention& a, int64_t threads) {
  const int64_t reach = a.window ? std::min(a.S, 2 * a.window + 1) : a.S;
  const int64_t scores = a.H * (a.query_cu_seqlens ? a.T * a.S / std::max<int64_t>(1, a.B) : a.B * a.T * reach);
  return std::min(threads, scores * (a.K + a.V) / kMinProducts);
}

template <typename Work>
void for_each_group(const Attention& a, int64_t threads, const Work& work) {
  const auto do_some = [&](int64_t first, int64_t last) {
    static thread_local Workspace workspace;
    for (int64_t n = first; n < last; ++n) work(sequence_at(a, n / a.G), n % a.G, workspace);
  };
  parallel_for(a.B * a.G, threads, do_some, &run_on_openmp);
}

// The tiles of long sequences, in spans of so many queries; a thread has one span at a time. Where spans write to the keys of
// others, those within one reach of each other are never computed at once: first every other one, then the rest.
template <typename Work>
void for_each_tile(const Attention& a, int64_t span, bool apart, int64_t threads, const Work& work) {
  const int64_t spans = (a.T + span - 1) / span, turns = apart ? 2 : 1;
  for (int64_t turn = 0; turn < turns; ++turn) {
    const int64_t each = (spans - turn + turns - 1) / turns;
    const auto do_some = [&](int64_t from, int64_t to) {
      static thread_local Workspace workspace;
      for (int64_t n = from; n < to; ++n) {
        const int64_t group = n / each, begin = (n % each * turns + turn) * span, end = std::min(a.T, begin + span);
        for (int64_t query = begin; query < end; query += kTile)
          work(tile_at(a, group / a.G, query), group % a.G, workspace);
      }
    };
    parallel_for(a.B * a.G * each, threads, do_some, &run_on_openmp);
  }
}

void run_forward(const Attention& a, int64_t threads) {
  check(a);
  const auto work = [&](const Sequence& at, int64_t g, Workspace& workspace) { forward(a, at, g, workspace); };
  threads = useful_threads(a, threads);
  if (is_tiled(a)) return for_each_tile(a, kMinSpan, false, threads, work);
  for_each_group(a, threads, work);
}

void run_backward(const Attention& a, const AttentionGradients& d, int64_t threads) {
  check(a);
  require(!a.bias == !d.bias, "the gradient of a bias needs a bias");
  const auto work = [&](const Sequence& at, int64_t g, Workspace& workspace) { backward(a, d, at, g, workspace); };
  threads = useful_threads(a, threads);
  if (!is_tiled(a)) return for_each_group(a, threads, work);
  // Without a window all tiles write to all keys, and all to the gradient of a bias: then a group is one span.
  const int64_t reach = round_up(2 * a.window, kTile);
  if (a.window && !a.bias) return for_each_tile(a, std::max(kMinSpan, reach), true, threads, work);
  for_each_tile(a, a.T, false, threads, work);
}

}  // namespace
}  // namespace regard

extern "C" {

int regard_attention(const regard::Attention* a, int64_t threads) {
  return regard::guarded([=] { regard::run_forward(*a, threads); });
}

int regard_attention_backward(const regard::Attention* a, const regard::AttentionGradients* d, int64_t threads) {
  return regard::guarded([=] { regard::run_backward(*a, *d, threads); });
}
}
