// Cross-entropy and its gradient in the place of the logits, each row in one pass; or a sample of the gradient's elements, which
// is unbiased, and the gradients of the states and the weights that follow from it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "errors.hpp"
#include "int8.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "structs.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kMinLogits = 20'000;  // for each thread; for fewer, waking one up costs more than it saves
constexpr int64_t kRowsAtOnce = 12;     // whose logits are computed here: they are still in the cache for the loss

struct Normalizer {
  float sum, largest;
};

// Puts e^(z - max z) in the place of z; returns their sum, and max z.
REGARD_AVX2 Normalizer softmax_numerators(float* row, int64_t W) {
  Vec most = Vec::all(kMinusInfinity);
  for (int64_t w = 0; w < W; w += kLanes) most = max(Vec::load_some(row + w, W - w, kMinusInfinity), most);
  const float largest = max_lane(most);
  return {exponentials(row, W, largest, kFarBelow), largest};
}

// -log p + ε · z of a label with this logit.
float label_nll(float logit, const Normalizer& normalizer, float smoothing) {
  return std::log(normalizer.sum) + (normalizer.largest - logit) + smoothing * logit;
}

// Puts softmax(z) - (1 - ε) · one-hot in the place of z; returns -log p + ε · z of the label.
REGARD_AVX2 float nll(float* row, int64_t W, int64_t label, float smoothing) {
  const float logit = row[label];
  const Normalizer normalizer = softmax_numerators(row, W);
  const Vec inverse = Vec::all(1.0f / normalizer.sum);
  for (int64_t w = 0; w < W; w += kLanes) (Vec::load_some(row + w, W - w) * inverse).store_some(row + w, W - w);
  row[label] -= 1.0f - smoothing;
  return label_nll(logit, normalizer, smoothing);
}

// An element of the gradient for the logits.
struct Element {
  int32_t word;
  float value;
};

// The gradient of a row is what is in its place by now, times `scale`, less `shift`.
struct Gradient {
  float scale, shift;
};

struct RowLoss {
  float loss;
  Gradient gradient;
};

// The loss of one row of logits, and g = softmax(z) - q, q the smoothed label.
RowLoss cross_entropy(const SampledLoss& d, int64_t label, float* row) {
  const float logit = row[label];
  const Normalizer normalizer = softmax_numerators(row, d.W);
  row[label] -= (1.0f - d.smoothing) * normalizer.sum;
  return {label_nll(logit, normalizer, d.smoothing), {1.0f / normalizer.sum, d.smoothing / d.W}};
}

// The same for two passes that are to agree (R-Drop). Each has half of the loss and of g; beside it, with d = log P₁ - log P₂,
// there is α/4 · Σ (P₁ - P₂) · d, whose gradient is α/4 · (P₁ · (d - Σ P₁ d) + P₁ - P₂) for the first logits and
// α/4 · (P₂ · (Σ P₂ d - d) + P₂ - P₁) for the second. `differences` is a buffer for a row.
REGARD_AVX2 RowLoss r_drop(const SampledLoss& d, int64_t label, float* one, float* two, float* differences) {
  const int64_t W = d.W;
  const float logit = one[label], other_logit = two[label];
  for (int64_t w = 0; w < W; w += kLanes)
    (Vec::load_some(one + w, W - w) - Vec::load_some(two + w, W - w)).store_some(differences + w, W - w);
  const Normalizer normalizer = softmax_numerators(one, W), other = softmax_numerators(two, W);
  Vec sums = Vec::zero(), other_sums = Vec::zero();
  for (int64_t w = 0; w < W; w += kLanes) {
    const Vec difference = Vec::load_some(differences + w, W - w);
    sums = fmadd(Vec::load_some(one + w, W - w), difference, sums);
    other_sums = fmadd(Vec::load_some(two + w, W - w), difference, other_sums);
  }
  // The means are those of z₁ - z₂; d is less by a constant, which cancels.
  const float mean = sum_lanes(sums) / normalizer.sum, other_mean = sum_lanes(other_sums) / other.sum;
  const float quarter = d.alpha / 4;
  const Vec inverse = Vec::all(1.0f / normalizer.sum), other_inverse = Vec::all(1.0f / other.sum);
  const Vec means = Vec::all(mean), other_means = Vec::all(other_mean);
  const Vec factor = Vec::all(quarter), half = Vec::all(0.5f);
  for (int64_t w = 0; w < W; w += kLanes) {
    const Vec difference = Vec::load_some(differences + w, W - w);
    const Vec p = Vec::load_some(one + w, W - w) * inverse;
    const Vec q = Vec::load_some(two + w, W - w) * other_inverse;
    const Vec pull = fmadd(p, difference - means, p - q);
    const Vec other_pull = fmadd(q, difference - other_means, p - q);
    fmadd(factor, pull, half * p).store_some(one + w, W - w);
    fnmadd(factor, other_pull, half * q).store_some(two + w, W - w);
  }
  for (float* row : {one, two}) row[label] -= (1.0f - d.smoothing) / 2;
  const float nlls = label_nll(logit, normalizer, d.smoothing) + label_nll(other_logit, other, d.smoothing);
  return {nlls / 2 + quarter * (mean - other_mean), {1.0f, d.smoothing / W / 2}};
}

// Sample from the gradient of a row: what is smaller than `small` is kept with the probability |g| / small, and then as large
// as that. The random numbers of a row go round a circle in golden steps from a random start: each by itself is as good as any,
// and together they are spread more evenly than independent ones. Returns how many are kept.
REGARD_AVX2 int64_t sample(const float* row, const Gradient& gradient, int64_t W, int64_t start, float small,
                           Element* elements) {
  constexpr uint32_t kGolden = 0x9E3779B9u;
  const Vec scale = Vec::all(gradient.scale), shift = Vec::all(gradient.shift), least = Vec::all(small);
  const Vec to_threshold = Vec::all(2147483648.0f / small), most = Vec::all(2147483520.0f);
  IntVec random =
      IntVec::all(static_cast<int32_t>(start)) + IntVec::all(static_cast<int32_t>(kGolden)) * IntVec::iota();
  const IntVec to_next = IntVec::all(static_cast<int32_t>(8 * kGolden));
  int64_t count = 0;
  for (int64_t w = 0; w < W; w += kLanes, random = random + to_next) {
    const Vec g = Vec::load_some(row + w, W - w) * scale - shift;
    const Vec size = abs(g);
    const IntVec threshold = truncated_int(min(size * to_threshold, most));
    int mask = ((threshold > half_unsigned(random)) | not_less(size, least)).bits();
    if (w + kLanes > W) mask &= (1 << (W - w)) - 1;
    if (!mask) continue;
    alignas(32) float values[kLanes];
    with_sign_of(g, max(least, size)).store(values);  // NaN stays NaN
    for (; mask; mask &= mask - 1) {
      const int i = __builtin_ctz(mask);
      elements[count++] = {static_cast<int32_t>(w + i), values[i]};
    }
  }
  return count;
}

// y = Σ value · weight[word], eight vectors at a time.
REGARD_AVX2 void gather(const Element* elements, int64_t count, const float* weight, int64_t D, float* y) {
  constexpr int64_t kWide = 8 * kLanes;
  int64_t d = 0;
  for (; d + kWide <= D; d += kWide) {
    Vec sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums[i] = Vec::zero();
    for (int64_t c = 0; c < count; ++c) {
      const float* row = weight + elements[c].word * D + d;
      const Vec value = Vec::all(elements[c].value);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[i] = fmadd(value, Vec::load(row + kLanes * i), sums[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sums[i].store(y + d + kLanes * i);
  }
  if (d == D) return;
  std::fill(y + d, y + D, 0.0f);
  for (int64_t c = 0; c < count; ++c) add(y + d, weight + elements[c].word * D + d, elements[c].value, D - d);
}

// What was sampled for some rows of a pass, one list behind the other, each in the order of its words.
struct Sampled {
  int64_t first = 0;  // row, of those of all passes
  std::vector<Element> elements;
  std::vector<int64_t> ends{0};  // of the lists of rows first, first + 1, …
};

// Where to divide the vocabulary into parts that were sampled about equally often.
std::vector<int32_t> boundaries(const std::vector<Sampled>& sampled, int64_t W, int64_t parts) {
  constexpr int64_t kBucket = 16;  // words
  std::vector<int64_t> counts(W / kBucket + 1);
  int64_t all = 0;
  for (const Sampled& some : sampled) {
    for (const Element& element : some.elements) ++counts[element.word / kBucket];
    all += some.elements.size();
  }
  std::vector<int32_t> found{0};
  int64_t before = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(counts.size()); ++i) {
    while (static_cast<int64_t>(found.size()) < parts && before >= all * static_cast<int64_t>(found.size()) / parts)
      found.push_back(static_cast<int32_t>(i * kBucket));
    before += counts[i];
  }
  found.resize(parts, static_cast<int32_t>(W));
  found.push_back(static_cast<int32_t>(W));
  return found;
}

// Add what was sampled for the words from first to last to the gradient of their weights, row by row.
void scatter(const SampledLoss& d, const std::vector<Sampled>& sampled, int32_t first, int32_t last) {
  const auto before = [](const Element& element, int32_t word) { return element.word < word; };
  for (const Sampled& some : sampled)
    for (size_t r = 0; r + 1 < some.ends.size(); ++r) {
      const Element* end = some.elements.data() + some.ends[r + 1];
      const Element* element = std::lower_bound(some.elements.data() + some.ends[r], end, first, before);
      for (; element != end && element->word < last; ++element) {
        add(d.weight_gradient + element->word * d.D, d.states + (some.first + r) * d.D, element->value, d.D);
        if (d.bias_gradient) d.bias_gradient[element->word] += element->value;
      }
    }
}

// Computes the losses of rows and samples from their gradients, in one thread.
class Sampler {
 public:
  // Quantized weights are for logits that are computed here.
  Sampler(const SampledLoss& d, const QuantizedWeights& weights)
      : d_(d),
        weights_(weights),
        elements_(new Element[d.W]),
        differences_(d.P == 1 ? 0 : d.W),
        logits_(d.logits ? 0 : d.P * kRowsAtOnce * d.W) {}

  // What is sampled for the rows from first to last goes to one list for each pass.
  void sample_rows(int64_t first, int64_t last, Sampled* const lists[2]) {
    for (int64_t p = 0; p < d_.P; ++p) lists[p]->first = p * d_.R + first;
    for (int64_t start = first; start < last; start += kRowsAtOnce) {
      const int64_t end = std::min(last, start + kRowsAtOnce);
      float* logits[2];  // of row `start`
      for (int64_t p = 0; p < d_.P; ++p) logits[p] = logits_from(p, start, end);
      for (int64_t r = start; r < end; ++r) {
        float* rows[2];
        for (int64_t p = 0; p < d_.P; ++p) rows[p] = logits[p] + (r - start) * d_.W;
        sample_row(r, rows, lists);
      }
    }
  }

 private:
  float* logits_from(int64_t pass, int64_t start, int64_t end) {
    const int64_t row = pass * d_.R + start;
    if (d_.logits) return d_.logits + row * d_.W;
    float* found = logits_.data() + pass * kRowsAtOnce * d_.W;
    weights_.multiply({d_.states + row * d_.D, d_.D, 1}, end - start, Rounding::kNearest, d_.bias, quantized_, found);
    return found;
  }

  void sample_row(int64_t r, float* const rows[2], Sampled* const lists[2]) {
    const int64_t label = d_.labels[r];
    const auto [loss, gradient] =
        d_.P == 1 ? cross_entropy(d_, label, rows[0]) : r_drop(d_, label, rows[0], rows[1], differences_.data());
    d_.losses[r] = loss;
    for (int64_t p = 0; p < d_.P; ++p) {
      const int64_t row = p * d_.R + r;
      Element* elements = elements_.get();
      const int64_t count = sample(rows[p], gradient, d_.W, d_.starts[row], d_.small, elements);
      gather(elements, count, d_.weight, d_.D, d_.state_gradient + row * d_.D);
      lists[p]->elements.insert(lists[p]->elements.end(), elements, elements + count);
      lists[p]->ends.push_back(static_cast<int64_t>(lists[p]->elements.size()));
    }
  }

  const SampledLoss& d_;
  const QuantizedWeights& weights_;
  const std::unique_ptr<Element[]> elements_;
  std::vector<float> differences_, logits_;
  QuantizedRows quantized_;
};

void check_labels(const int64_t* labels, int64_t R, int64_t W) {
  require(std::all_of(labels, labels + R, [=](int64_t label) { return 0 <= label && label < W; }),
          "a label is outside the vocabulary");
}

void sampled_loss(const SampledLoss& d, int64_t threads) {
  require(d.P == 1 || d.P == 2, "the sampled loss takes one pass or two");
  require(d.R >= 0 && d.W > 0 && d.D > 0, "the sampled loss needs a vocabulary and states");
  require(d.small > 0.0f, "the size of sampled gradients must be positive");
  check_labels(d.labels, d.R, d.W);
  threads = std::max<int64_t>(1, std::min(threads, d.P * d.R * d.W / kMinLogits));
  thread_local QuantizedWeights workspace;
  QuantizedWeights& weights = workspace;
  if (!d.logits) weights.quantize({d.weight, d.D, 1}, d.W, d.D, Rounding::kNearest, threads);
  std::vector<Sampled> sampled(d.P * threads);  // pass by pass, so that a word's rows come in the same order for any threads
  const auto sample_part = [&](int64_t t, int64_t) {
    Sampled* const lists[2] = {&sampled[t], &sampled[(d.P - 1) * threads + t]};
    Sampler(d, weights).sample_rows(d.R * t / threads, d.R * (t + 1) / threads, lists);
  };
  parallel_for(threads, threads, sample_part, &run_on_openmp);
  const std::vector<int32_t> bounds = boundaries(sampled, d.W, threads);
  const auto scatter_part = [&](int64_t t, int64_t) { scatter(d, sampled, bounds[t], bounds[t + 1]); };
  parallel_for(threads, threads, scatter_part, &run_on_openmp);
}

}  // namespace
}  // namespace regard

extern "C" {

int regard_sampled_loss(const regard::SampledLoss* loss, int64_t threads) {
  return regard::guarded([&] { regard::sampled_loss(*loss, threads); });
}

// The negative log-likelihoods of labels, with the gradients in the place of the logits.
int regard_nll(float* logits, const int64_t* labels, int64_t R, int64_t W, float smoothing, int64_t threads, float* nlls) {
  using namespace regard;
  const auto do_rows = [=](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) nlls[row] = nll(logits + row * W, W, labels[row], smoothing);
  };
  return guarded([&] {
    require(R >= 0 && W > 0, "the loss needs a vocabulary");
    check_labels(labels, R, W);
    parallel_for(R, std::min(threads, R * W / kMinLogits), do_rows, &run_on_openmp);
  });
}
}
