// The layers of a Transformer over rows: what a step of decoding and the reading of a sentence need, without a call into
// anything else between their parts.
//
// Every row is computed by itself and every sentence has its own length, so that nothing depends on what lies beside it.
// The structures have the layout of those in `pipeline/native_stack.py`. Plain C on the outside.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bytes.hpp"
#include "threads.hpp"
#include "vectors.hpp"

namespace regard {
namespace {

constexpr int64_t kRows = 60;  // that go through the layers together: what is computed of them stays in the caches
constexpr int64_t kWorthAThread = 20;  // rows; for fewer, waking one up costs more than it saves

enum Activation : int32_t { kRelu, kGelu, kGeluTanh, kSilu };  // numbered as in Python

struct Norm {
  const float* weight;
  const float* bias;  // or null
  float eps;
  int32_t centred;  // LayerNorm takes the mean away, RMSNorm does not
};

struct Heads {
  int64_t count, key_value_count, d_k, d_v;

  int64_t queries() const { return count * d_k; }
  int64_t keys() const { return key_value_count * d_k; }
  int64_t width() const { return key_value_count * (d_k + d_v); }  // of keys and values side by side
};

struct Layer {
  Heads heads, source_heads;
  Norm first, second, third;  // around self-attention, around cross-attention, around the feed-forward network
  Linear query_key_value, output;
  Linear source_query, source_output;
  Linear expand, contract;
  int32_t norm_before, looks_at_source, activation, gated;
};

// What is being decoded.
struct Decoding {
  float* const* past;         // for each layer: sentences × capacity × rows × width, what each row wrote at each position
  const int32_t* writers;     // sentences × rows × capacity: which row wrote what is a row's past at each position
  const int64_t* positions;   // for each sentence: where its rows write now
  int64_t rows, capacity;    // capacity: in positions
  const float* const* source;     // for each layer: sentences × source_capacity × width
  const int64_t* source_lengths;  // for each sentence
  int64_t source_capacity;
};

struct Stack {
  const Layer* layers;
  int64_t count, D;
  const Norm* final;  // or null
};

// Room for one thread, which grows to what is needed and is used again.
struct Room {
  ByteRows bytes;
  std::vector<float> normed, wide, heads, added, scores;
  std::vector<const float*> places;
};

REGARD_AVX2 void normalize(const Norm& norm, const float* x, int64_t D, float* y) {
  float mean = 0.0f;
  int64_t d = 0;
  if (norm.centred) {
    __m256 sum = _mm256_setzero_ps();
    for (; d + 8 <= D; d += 8) sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + d));
    mean = sum_of(sum);
    for (; d < D; ++d) mean += x[d];
    mean /= D;
  }
  const __m256 means = _mm256_set1_ps(mean);
  __m256 squares = _mm256_setzero_ps();
  for (d = 0; d + 8 <= D; d += 8) {
    const __m256 apart = _mm256_sub_ps(_mm256_loadu_ps(x + d), means);
    squares = _mm256_fmadd_ps(apart, apart, squares);
  }
  float variance = sum_of(squares);
  for (; d < D; ++d) variance += (x[d] - mean) * (x[d] - mean);
  const float factor = 1.0f / std::sqrt(variance / D + norm.eps);
  const __m256 factors = _mm256_set1_ps(factor);
  for (d = 0; d + 8 <= D; d += 8) {
    __m256 value = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + d), means), factors);
    value = _mm256_mul_ps(value, _mm256_loadu_ps(norm.weight + d));
    if (norm.bias) value = _mm256_add_ps(value, _mm256_loadu_ps(norm.bias + d));
    _mm256_storeu_ps(y + d, value);
  }
  for (; d < D; ++d) y[d] = (x[d] - mean) * factor * norm.weight[d] + (norm.bias ? norm.bias[d] : 0.0f);
}

void normalize_rows(const Norm& norm, const float* x, int64_t R, int64_t D, float* y) {
  for (int64_t row = 0; row < R; ++row) normalize(norm, x + row * D, D, y + row * D);
}

// What a sublayer reads: the rows, normalised first where the norm comes before.
const float* entering(const Norm& norm, bool before, const float* x, int64_t R, int64_t D, Room& room) {
  if (!before) return x;
  float* normed = at_least(room.normed, R * D);
  normalize_rows(norm, x, R, D, normed);
  return normed;
}

// Add what a sublayer gave, and normalise where the norm comes after.
void leaving(const Norm& norm, bool before, const float* added, int64_t R, int64_t D, float* x) {
  add(x, added, 1.0f, R * D);
  if (!before) normalize_rows(norm, x, R, D, x);
}

// One row over the keys and values at `places`: softmax(qKᵀ/√d_k)V of each head, its heads side by side.
REGARD_AVX2 void attend(const Heads& heads, const float* query, const std::vector<const float*>& places,
                        std::vector<float>& scores, float* out) {
  const int64_t S = places.size(), whole = (S + 7) / 8 * 8;
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads.d_k));
  const int64_t shared = heads.count / heads.key_value_count;  // by so many neighbouring heads
  float* weights = at_least(scores, whole);
  for (int64_t head = 0; head < heads.count; ++head) {
    const int64_t key = head / shared * heads.d_k, value = heads.keys() + head / shared * heads.d_v;
    float most = -INFINITY;
    bool wrong = false;  // some are not numbers, which a maximum may forget
    for (int64_t s = 0; s < S; ++s) {
      weights[s] = scale * dot(query + head * heads.d_k, places[s] + key, heads.d_k);
      most = std::max(most, weights[s]);
      wrong = wrong || !std::isfinite(weights[s]);
    }
    std::fill(weights + S, weights + whole, -INFINITY);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t s = 0; s < whole; s += 8) {
      const __m256 apart = _mm256_sub_ps(_mm256_loadu_ps(weights + s), _mm256_set1_ps(most));
      // Only what fills the last eight up is that far away, and it counts for nothing.
      const __m256 real = _mm256_cmp_ps(apart, _mm256_set1_ps(-INFINITY), _CMP_NEQ_UQ);
      const __m256 weight = _mm256_and_ps(exponential(apart), real);
      _mm256_storeu_ps(weights + s, weight);
      sum = _mm256_add_ps(sum, weight);
    }
    const float factor = wrong ? NAN : 1.0f / sum_of(sum);
    float* mixed = out + head * heads.d_v;
    std::fill(mixed, mixed + heads.d_v, 0.0f);
    for (int64_t s = 0; s < S; ++s) add(mixed, places[s] + value, weights[s] * factor, heads.d_v);
  }
}

REGARD_AVX2 void bend_by_relu(float* x, int64_t size) {
  int64_t i = 0;  // of zero and what is not a number, this gives the latter
  for (; i + 8 <= size; i += 8)
    _mm256_storeu_ps(x + i, _mm256_max_ps(_mm256_setzero_ps(), _mm256_loadu_ps(x + i)));
  for (; i < size; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

float bent(float x, int32_t activation) {
  switch (activation) {
    case kGelu: return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    case kGeluTanh: return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case kSilu: return x / (1.0f + std::exp(-x));
    default: return x < 0.0f ? 0.0f : x;
  }
}

void feed_forward(const Layer& layer, int64_t R, int64_t D, Room& room, float* x) {
  const float* in = entering(layer.third, layer.norm_before, x, R, D, room);
  float* wide = at_least(room.wide, R * layer.expand.X);
  multiply(layer.expand, in, R, 1, room.bytes, wide);
  const int64_t F = layer.contract.D;
  if (layer.gated) {  // the hidden layer and its gate side by side, written over by their product
    for (int64_t row = 0; row < R; ++row)
      for (int64_t f = 0; f < F; ++f)
        wide[row * F + f] = wide[row * 2 * F + f] * bent(wide[row * 2 * F + F + f], layer.activation);
  } else if (layer.activation == kRelu) {
    bend_by_relu(wide, R * F);
  } else {
    for (int64_t i = 0; i < R * F; ++i) wide[i] = bent(wide[i], layer.activation);
  }
  float* added = at_least(room.added, R * D);
  multiply(layer.contract, wide, R, 1, room.bytes, added);
  leaving(layer.third, layer.norm_before, added, R, D, x);
}

// Sentences from `first` to `last`, their rows one after the other, through all layers.
void encode(const Stack& stack, float* x, const int64_t* starts, int64_t first, int64_t last, Room& room) {
  const int64_t D = stack.D, start = starts[first], R = starts[last] - start;
  x += start * D;
  for (const Layer* layer = stack.layers; layer < stack.layers + stack.count; ++layer) {
    const Heads& heads = layer->heads;
    const float* in = entering(layer->first, layer->norm_before, x, R, D, room);
    const int64_t X = layer->query_key_value.X;
    float* together = at_least(room.wide, R * X);
    multiply(layer->query_key_value, in, R, 1, room.bytes, together);
    float* mixed = at_least(room.heads, R * layer->output.D);
    for (int64_t sentence = first; sentence < last; ++sentence) {
      room.places.clear();
      for (int64_t row = starts[sentence] - start; row < starts[sentence + 1] - start; ++row)
        room.places.push_back(together + row * X + heads.queries());
      for (int64_t row = starts[sentence] - start; row < starts[sentence + 1] - start; ++row)
        attend(heads, together + row * X, room.places, room.scores, mixed + row * layer->output.D);
    }
    float* added = at_least(room.added, R * D);
    multiply(layer->output, mixed, R, 1, room.bytes, added);
    leaving(layer->first, layer->norm_before, added, R, D, x);
    feed_forward(*layer, R, D, room, x);
  }
  if (stack.final) normalize_rows(*stack.final, x, R, D, x);
}

// The first N rows of each sentence from `first` to `last`, one position further.
void step(const Stack& stack, const Decoding& at, int64_t N, int64_t first, int64_t last, Room& room, float* x) {
  const int64_t D = stack.D, R = (last - first) * N;
  x += first * N * D;
  for (int64_t index = 0; index < stack.count; ++index) {
    const Layer& layer = stack.layers[index];
    const Heads& heads = layer.heads;
    const float* in = entering(layer.first, layer.norm_before, x, R, D, room);
    const int64_t X = layer.query_key_value.X, width = heads.width();
    float* together = at_least(room.wide, R * X);
    multiply(layer.query_key_value, in, R, 1, room.bytes, together);
    float* mixed = at_least(room.heads, R * layer.output.D);
    for (int64_t sentence = first; sentence < last; ++sentence) {
      float* past = at.past[index] + sentence * at.capacity * at.rows * width;
      const int64_t now = at.positions[sentence];
      for (int64_t n = 0; n < N; ++n) {
        const int64_t row = (sentence - first) * N + n;
        std::copy_n(together + row * X + heads.queries(), width, past + (now * at.rows + n) * width);
        const int32_t* writers = at.writers + (sentence * at.rows + n) * at.capacity;
        room.places.clear();
        for (int64_t t = 0; t < now; ++t) room.places.push_back(past + (t * at.rows + writers[t]) * width);
        room.places.push_back(past + (now * at.rows + n) * width);
        attend(heads, together + row * X, room.places, room.scores, mixed + row * layer.output.D);
      }
    }
    float* added = at_least(room.added, R * D);
    multiply(layer.output, mixed, R, 1, room.bytes, added);
    leaving(layer.first, layer.norm_before, added, R, D, x);
    if (layer.looks_at_source) {
      const Heads& looking = layer.source_heads;
      in = entering(layer.second, layer.norm_before, x, R, D, room);
      float* queries = at_least(room.wide, R * looking.queries());
      multiply(layer.source_query, in, R, 1, room.bytes, queries);
      mixed = at_least(room.heads, R * layer.source_output.D);
      for (int64_t sentence = first; sentence < last; ++sentence) {
        const float* source = at.source[index] + sentence * at.source_capacity * looking.width();
        room.places.clear();
        for (int64_t s = 0; s < at.source_lengths[sentence]; ++s) room.places.push_back(source + s * looking.width());
        for (int64_t row = (sentence - first) * N; row < (sentence - first + 1) * N; ++row)
          attend(looking, queries + row * looking.queries(), room.places, room.scores,
                 mixed + row * layer.source_output.D);
      }
      multiply(layer.source_output, mixed, R, 1, room.bytes, added);
      leaving(layer.second, layer.norm_before, added, R, D, x);
    }
    feed_forward(layer, R, D, room, x);
  }
  if (stack.final) normalize_rows(*stack.final, x, R, D, x);
}

}  // namespace
}  // namespace regard

extern "C" {

// The input of a stack: each token's row of a table, scaled, and its position's row of another, if there is one.
void regard_embed(const float* tokens_table, const float* positions_table, const int64_t* tokens,
                  const int64_t* positions, int64_t R, int64_t D, float scale, float* x) {
  for (int64_t row = 0; row < R; ++row) {
    const float* token = tokens_table + tokens[row] * D;
    const float* position = positions_table ? positions_table + positions[row] * D : nullptr;
    for (int64_t d = 0; d < D; ++d) x[row * D + d] = token[d] * scale + (position ? position[d] : 0.0f);
  }
}

// Read B sentences: x holds their rows, embedded, sentence b from starts[b] to starts[b + 1]; states come in their place.
int regard_encode(const regard::Stack* stack, float* x, const int64_t* starts, int64_t B, int64_t threads) {
  const auto some = [=](int64_t first, int64_t last) {
    thread_local regard::Room room;
    while (first < last) {
      int64_t next = first + 1;
      while (next < last && starts[next + 1] - starts[first] <= regard::kRows) ++next;
      regard::encode(*stack, x, starts, first, next, room);
      first = next;
    }
  };
  threads = std::min(threads, starts[B] / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(B, threads, some); });
}

// Take one token further N rows of each of B sentences: x holds them, embedded; their states come in their place.
int regard_step(const regard::Stack* stack, const regard::Decoding* at, int64_t B, int64_t N, int64_t threads,
                float* x) {
  const int64_t together = std::max<int64_t>(1, regard::kRows / std::max<int64_t>(1, N));
  const auto some = [=](int64_t first, int64_t last) {
    thread_local regard::Room room;
    for (; first < last; first += together)
      regard::step(*stack, *at, N, first, std::min(last, first + together), room, x);
  };
  threads = std::min(threads, B * N / regard::kWorthAThread);
  return regard::guarded([&] { regard::in_parts(B, threads, some); });
}

// How large the structures are that Python fills, so that a test can compare them.
void regard_sizes(int64_t* sizes) {
  using namespace regard;
  const int64_t found[] = {sizeof(Linear), sizeof(Norm), sizeof(Heads), sizeof(Layer), sizeof(Stack), sizeof(Decoding)};
  std::copy(std::begin(found), std::end(found), sizes);
}
}
