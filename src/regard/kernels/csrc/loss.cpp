// Cross-entropy and its gradient in the place of the logits, each row in one go; or a few of the gradient's elements, drawn
// so that they are right on average, and what they make of the states and the weights. Plain C on the outside.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "bytes.hpp"
#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kWorthAThread = 20'000;  // logits; for fewer, waking a thread up costs more than it saves
constexpr int64_t kRowsAtOnce = 12;        // whose logits are computed here: they are still in the cache when they are judged

// Eight numbers from w on of W.
REGARD_AVX2 inline __m256 eight_at(const float* row, int64_t w, int64_t W) { return some_of(row + w, W - w); }

// Eight logits, and what can never be for those beyond.
REGARD_AVX2 inline __m256 logits_at(const float* logits, int64_t w, int64_t W) { return some_of(logits + w, W - w, kNothing); }

REGARD_AVX2 inline void put(__m256 values, float* row, int64_t w, int64_t W) {
  if (w + 8 <= W) return _mm256_storeu_ps(row + w, values);
  alignas(32) float some[8];
  _mm256_store_ps(some, values);
  std::copy(some, some + W - w, row + w);
}

struct Total {
  float sum, largest;
};

// Puts e^(z - max z) in the place of z; gives their sum, and max z.
REGARD_AVX2 Total exponentials(float* row, int64_t W) {
  __m256 most = _mm256_set1_ps(kNothing);
  for (int64_t w = 0; w < W; w += 8) most = _mm256_max_ps(logits_at(row, w, W), most);
  const float largest = largest_of(most);
  const __m256 top = _mm256_set1_ps(largest);
  __m256 sums = _mm256_setzero_ps();
  for (int64_t w = 0; w < W; w += 8) {
    const __m256 below = _mm256_sub_ps(logits_at(row, w, W), top);
    // Where nothing is left it is 0: numbers too small to be normal would slow the products down that they go into.
    const __m256 some = _mm256_cmp_ps(below, _mm256_set1_ps(-80.0f), _CMP_NLT_UQ);
    const __m256 chance = _mm256_and_ps(some, exponential(below));
    sums = _mm256_add_ps(sums, chance);
    put(chance, row, w, W);
  }
  return {sum_of(sums), largest};
}

// -log p + ε · z of a label whose logit is given.
float surprise_at(float given, const Total& total, float smoothing) {
  return std::log(total.sum) + (total.largest - given) + smoothing * given;
}

// Puts softmax(z) - (1 - ε) · one-hot in the place of z; gives -log p + ε · z of the label.
REGARD_AVX2 float surprise(float* row, int64_t W, int64_t label, float smoothing) {
  const float given = row[label];
  const Total total = exponentials(row, W);
  const __m256 inverse = _mm256_set1_ps(1.0f / total.sum);
  for (int64_t w = 0; w < W; w += 8) put(_mm256_mul_ps(eight_at(row, w, W), inverse), row, w, W);
  row[label] -= 1.0f - smoothing;
  return surprise_at(given, total, smoothing);
}

// An element of the gradient for the logits.
struct Element {
  int32_t word;
  float size;
};

// The layout is that of `_Drawing` in `ops/drawn_loss.py`. There are P passes, one or two, each of R rows, one behind the
// other.
struct Drawing {
  int64_t P, R, W, D;
  float* logits;          // P × R × W; what is in them is lost. Or null: they are computed here, as products of bytes
  const int64_t* labels;  // R
  const int64_t* starts;  // P × R random words
  const float* states;    // P × R × D
  const float* weight;    // W × D
  const float* bias;      // W, or null; for logits that are computed here
  float smoothing, small, agreement;
  float* losses;           // R: the loss of each row, but for the mean of its logits
  float* state_gradient;   // P × R × D
  float* weight_gradient;  // W × D, to which is added
  float* bias_gradient;    // W, likewise, or null
};

// The gradient of a row is what is in its place by now, times `scale`, less `shift`.
struct Gradient {
  float scale, shift;
};

struct Judged {
  float loss;
  Gradient gradient;
};

// The loss of one row of logits, and g = softmax(z) - q, q the smoothed label.
Judged judge_one(const Drawing& d, int64_t label, float* row) {
  const float given = row[label];
  const Total total = exponentials(row, d.W);
  row[label] -= (1.0f - d.smoothing) * total.sum;
  return {surprise_at(given, total, d.smoothing), {1.0f / total.sum, d.smoothing / d.W}};
}

// The same for two passes that are to agree. Each has half of the loss and of g; beside it, with d = log P₁ - log P₂, there
// is α/4 · Σ (P₁ - P₂) · d, whose gradient is α/4 · (P₁ · (d - Σ P₁ d) + P₁ - P₂) for the first logits and
// α/4 · (P₂ · (Σ P₂ d - d) + P₂ - P₁) for the second. `apart` is room for a row.
REGARD_AVX2 Judged judge_two(const Drawing& d, int64_t label, float* one, float* two, float* apart) {
  const float given = one[label], other_given = two[label];
  for (int64_t w = 0; w < d.W; w += 8)
    put(_mm256_sub_ps(eight_at(one, w, d.W), eight_at(two, w, d.W)), apart, w, d.W);
  const Total total = exponentials(one, d.W), other = exponentials(two, d.W);
  __m256 sums = _mm256_setzero_ps(), other_sums = _mm256_setzero_ps();
  for (int64_t w = 0; w < d.W; w += 8) {
    const __m256 x = eight_at(apart, w, d.W);
    sums = _mm256_fmadd_ps(eight_at(one, w, d.W), x, sums);
    other_sums = _mm256_fmadd_ps(eight_at(two, w, d.W), x, other_sums);
  }
  // The means are those of z₁ - z₂; d is less by a constant, which falls out.
  const float mean = sum_of(sums) / total.sum, other_mean = sum_of(other_sums) / other.sum;
  const float force = d.agreement / 4;
  const __m256 inverse = _mm256_set1_ps(1.0f / total.sum), other_inverse = _mm256_set1_ps(1.0f / other.sum);
  const __m256 means = _mm256_set1_ps(mean), other_means = _mm256_set1_ps(other_mean);
  const __m256 forces = _mm256_set1_ps(force), half = _mm256_set1_ps(0.5f);
  for (int64_t w = 0; w < d.W; w += 8) {
    const __m256 x = eight_at(apart, w, d.W);
    const __m256 p = _mm256_mul_ps(eight_at(one, w, d.W), inverse);
    const __m256 q = _mm256_mul_ps(eight_at(two, w, d.W), other_inverse);
    const __m256 change = _mm256_sub_ps(p, q);
    const __m256 pull = _mm256_fmadd_ps(p, _mm256_sub_ps(x, means), change);
    const __m256 other_pull = _mm256_fmadd_ps(q, _mm256_sub_ps(x, other_means), change);
    put(_mm256_fmadd_ps(forces, pull, _mm256_mul_ps(half, p)), one, w, d.W);
    put(_mm256_fnmadd_ps(forces, other_pull, _mm256_mul_ps(half, q)), two, w, d.W);
  }
  for (float* row : {one, two}) row[label] -= (1.0f - d.smoothing) / 2;
  const float surprises = surprise_at(given, total, d.smoothing) + surprise_at(other_given, other, d.smoothing);
  return {surprises / 2 + force * (mean - other_mean), {1.0f, d.smoothing / d.W / 2}};
}

// Draw from the gradient of a row: what is smaller than `small` is kept with the chance |g| / small, and then as large as
// that. The random numbers of a row go round a circle in golden steps from a random start: each by itself is as good as any,
// and together they are spread more evenly than chance would have them. Gives how many are kept.
REGARD_AVX2 int64_t draw(const float* row, const Gradient& gradient, int64_t W, int64_t start, float least, Element* changes) {
  constexpr uint32_t kGolden = 0x9E3779B9u;
  const __m256 scale = _mm256_set1_ps(gradient.scale), shift = _mm256_set1_ps(gradient.shift);
  const __m256 sign = _mm256_set1_ps(-0.0f), small = _mm256_set1_ps(least);
  const __m256 to_chance = _mm256_set1_ps(2147483648.0f / least), most = _mm256_set1_ps(2147483520.0f);
  __m256i chance = _mm256_add_epi32(
      _mm256_set1_epi32(static_cast<int32_t>(start)),
      _mm256_mullo_epi32(_mm256_set1_epi32(static_cast<int32_t>(kGolden)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
  const __m256i onward = _mm256_set1_epi32(static_cast<int32_t>(8 * kGolden));
  int64_t count = 0;
  for (int64_t w = 0; w < W; w += 8, chance = _mm256_add_epi32(chance, onward)) {
    const __m256 g = _mm256_sub_ps(_mm256_mul_ps(eight_at(row, w, W), scale), shift);
    const __m256 size = _mm256_andnot_ps(sign, g);
    const __m256i limit = _mm256_cvttps_epi32(_mm256_min_ps(_mm256_mul_ps(size, to_chance), most));
    const __m256 lucky = _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, _mm256_srli_epi32(chance, 1)));
    int mask = _mm256_movemask_ps(_mm256_or_ps(lucky, _mm256_cmp_ps(size, small, _CMP_NLT_UQ)));
    if (w + 8 > W) mask &= (1 << (W - w)) - 1;
    if (!mask) continue;
    alignas(32) float sizes[8];
    // Of the two, what is not a number stays so if it is the second.
    _mm256_store_ps(sizes, _mm256_or_ps(_mm256_max_ps(small, size), _mm256_and_ps(g, sign)));
    for (; mask; mask &= mask - 1) {
      const int i = __builtin_ctz(mask);
      changes[count++] = {static_cast<int32_t>(w + i), sizes[i]};
    }
  }
  return count;
}

// y = Σ size · weight[word], eight vectors at a time.
REGARD_AVX2 void gather(const Element* changes, int64_t count, const float* weight, int64_t D, float* y) {
  int64_t d = 0;
  for (; d + 64 <= D; d += 64) {
    __m256 sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums[i] = _mm256_setzero_ps();
    for (int64_t c = 0; c < count; ++c) {
      const float* row = weight + changes[c].word * D + d;
      const __m256 size = _mm256_set1_ps(changes[c].size);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[i] = _mm256_fmadd_ps(size, _mm256_loadu_ps(row + 8 * i), sums[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) _mm256_storeu_ps(y + d + 8 * i, sums[i]);
  }
  if (d == D) return;
  std::fill(y + d, y + D, 0.0f);
  for (int64_t c = 0; c < count; ++c) add(y + d, weight + changes[c].word * D + d, changes[c].size, D - d);
}

// What was drawn for some rows of a pass, one list behind the other, each in the order of its words.
struct Drawn {
  int64_t first = 0;  // row, of those of all passes
  std::vector<Element> changes;
  std::vector<int64_t> ends{0};  // of the lists of rows first, first + 1, …
};

// Where to cut the vocabulary into parts that were drawn about equally often.
std::vector<int32_t> cuts(const std::vector<Drawn>& drawn, int64_t W, int64_t parts) {
  constexpr int64_t kTogether = 16;
  std::vector<int64_t> counts(W / kTogether + 1);
  int64_t all = 0;
  for (const Drawn& some : drawn) {
    for (const Element& change : some.changes) ++counts[change.word / kTogether];
    all += some.changes.size();
  }
  std::vector<int32_t> found{0};
  int64_t before = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(counts.size()); ++i) {
    while (static_cast<int64_t>(found.size()) < parts && before >= all * static_cast<int64_t>(found.size()) / parts)
      found.push_back(static_cast<int32_t>(i * kTogether));
    before += counts[i];
  }
  found.resize(parts, static_cast<int32_t>(W));
  found.push_back(static_cast<int32_t>(W));
  return found;
}

// Add what was drawn for the words from first to last to the gradient of their weights, row by row.
void scatter(const Drawing& d, const std::vector<Drawn>& drawn, int32_t first, int32_t last) {
  const auto before = [](const Element& change, int32_t word) { return change.word < word; };
  for (const Drawn& some : drawn)
    for (size_t r = 0; r + 1 < some.ends.size(); ++r) {
      const Element* end = some.changes.data() + some.ends[r + 1];
      const Element* change = std::lower_bound(some.changes.data() + some.ends[r], end, first, before);
      for (; change != end && change->word < last; ++change) {
        add(d.weight_gradient + change->word * d.D, d.states + (some.first + r) * d.D, change->size, d.D);
        if (d.bias_gradient) d.bias_gradient[change->word] += change->size;
      }
    }
}

// Judges rows and draws from their gradients, in one thread.
class Drawer {
 public:
  // Rounded weights are for logits that are computed here.
  Drawer(const Drawing& drawing, const RoundedWeights& weights)
      : d_(drawing),
        weights_(weights),
        room_(new Element[drawing.W]),
        apart_(drawing.P == 1 ? 0 : drawing.W),
        computed_(drawing.logits ? 0 : drawing.P * kRowsAtOnce * drawing.W) {}

  // What is drawn for the rows from first to last goes to one list for each pass.
  void draw_rows(int64_t first, int64_t last, Drawn* const lists[2]) {
    for (int64_t p = 0; p < d_.P; ++p) lists[p]->first = p * d_.R + first;
    for (int64_t start = first; start < last; start += kRowsAtOnce) {
      const int64_t end = std::min(last, start + kRowsAtOnce);
      float* logits[2];  // of row `start`
      for (int64_t p = 0; p < d_.P; ++p) logits[p] = logits_from(p, start, end);
      for (int64_t r = start; r < end; ++r) {
        float* rows[2];
        for (int64_t p = 0; p < d_.P; ++p) rows[p] = logits[p] + (r - start) * d_.W;
        draw_row(r, rows, lists);
      }
    }
  }

 private:
  float* logits_from(int64_t pass, int64_t start, int64_t end) {
    const int64_t row = pass * d_.R + start;
    if (d_.logits) return d_.logits + row * d_.W;
    float* found = computed_.data() + pass * kRowsAtOnce * d_.W;
    weights_.multiply({d_.states + row * d_.D, d_.D, 1}, end - start, Rounding::kNearest, d_.bias, bytes_, found);
    return found;
  }

  void draw_row(int64_t r, float* const rows[2], Drawn* const lists[2]) {
    const int64_t label = d_.labels[r];
    const auto [loss, gradient] =
        d_.P == 1 ? judge_one(d_, label, rows[0]) : judge_two(d_, label, rows[0], rows[1], apart_.data());
    d_.losses[r] = loss;
    for (int64_t p = 0; p < d_.P; ++p) {
      const int64_t row = p * d_.R + r;
      const int64_t count = draw(rows[p], gradient, d_.W, d_.starts[row], d_.small, room_.get());
      gather(room_.get(), count, d_.weight, d_.D, d_.state_gradient + row * d_.D);
      lists[p]->changes.insert(lists[p]->changes.end(), room_.get(), room_.get() + count);
      lists[p]->ends.push_back(static_cast<int64_t>(lists[p]->changes.size()));
    }
  }

  const Drawing& d_;
  const RoundedWeights& weights_;
  const std::unique_ptr<Element[]> room_;
  std::vector<float> apart_, computed_;
  ByteRows bytes_;
};

void drawn_loss(const Drawing& d, int64_t threads) {
  threads = std::max<int64_t>(1, std::min(threads, d.P * d.R * d.W / kWorthAThread));
  thread_local RoundedWeights room;
  RoundedWeights& weights = room;
  if (!d.logits) weights.round({d.weight, d.D, 1}, d.W, d.D, Rounding::kNearest, threads);
  std::vector<Drawn> drawn(d.P * threads);  // pass by pass, so that a word's rows come in the same order for any threads
  in_parts(threads, threads, [&](int64_t t, int64_t) {
    Drawn* const lists[2] = {&drawn[t], &drawn[(d.P - 1) * threads + t]};
    Drawer(d, weights).draw_rows(d.R * t / threads, d.R * (t + 1) / threads, lists);
  }, &share_with_team);
  const std::vector<int32_t> parts = cuts(drawn, d.W, threads);
  in_parts(threads, threads, [&](int64_t t, int64_t) { scatter(d, drawn, parts[t], parts[t + 1]); }, &share_with_team);
}

}  // namespace
}  // namespace regard

extern "C" {

int regard_drawn_loss(const regard::Drawing* drawing, int64_t threads) {
  return regard::guarded([&] { regard::drawn_loss(*drawing, threads); });
}

int regard_surprise(float* logits, const int64_t* labels, int64_t R, int64_t W, float smoothing,
                    int64_t threads, float* surprises) {
  const auto some = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      surprises[row] = regard::surprise(logits + row * W, W, labels[row], smoothing);
  };
  threads = std::min(threads, R * W / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(R, threads, some, &regard::share_with_team); });
}
}
