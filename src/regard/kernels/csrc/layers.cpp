// The layers of a Transformer over rows: a step of decoding, and the encoding of sentences, without a call into anything else
// between their parts.
//
// Every row is computed by itself and every sentence has its own length, so that nothing depends on what lies beside it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "errors.hpp"
#include "int8.hpp"
#include "norm.hpp"
#include "simd.hpp"
#include "softmax.hpp"
#include "structs.hpp"
#include "threads.hpp"

namespace regard {
namespace {

constexpr int64_t kRows = 60;     // that go through the layers together: what is computed of them stays in the caches
constexpr int64_t kMinRows = 20;  // for each thread; for fewer, waking one up costs more than it saves

enum Activation : int32_t { kRelu, kGelu, kGeluTanh, kSilu };  // numbered as in `kernel_layers.py`

// What a row attends to: where a position's key and value are, side by side.
struct Key {
  const float* place;
  int64_t position;
};

// Buffers of one thread.
struct Workspace {
  QuantizedRows quantized;
  std::vector<float> normed, wide, heads, added, scores;
  std::vector<Key> keys;  // that a row attends to
};

REGARD_AVX2 void normalize(const Norm& norm, const float* x, int64_t D, float* y) {
  const float mean = norm.centered ? row_mean(x, D) : 0.0f;
  const float factor = row_inverse_deviation(x, D, mean, norm.eps);
  const Vec means = Vec::all(mean), factors = Vec::all(factor);
  int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) {
    Vec value = (Vec::load(x + d) - means) * factors * Vec::load(norm.weight + d);
    if (norm.bias) value = value + Vec::load(norm.bias + d);
    value.store(y + d);
  }
  for (; d < D; ++d) y[d] = (x[d] - mean) * factor * norm.weight[d] + (norm.bias ? norm.bias[d] : 0.0f);
}

void normalize_rows(const Norm& norm, const float* x, int64_t R, int64_t D, float* y) {
  for (int64_t row = 0; row < R; ++row) normalize(norm, x + row * D, D, y + row * D);
}

// What a sublayer reads: the rows, normalized if the norm comes first.
const float* sublayer_input(const Norm& norm, bool pre_norm, const float* x, int64_t R, int64_t D, Workspace& workspace) {
  if (!pre_norm) return x;
  float* normed = grown(workspace.normed, R * D);
  normalize_rows(norm, x, R, D, normed);
  return normed;
}

// The residual connection, and the norm if it comes last.
void add_sublayer(const Norm& norm, bool pre_norm, const float* added, int64_t R, int64_t D, float* x) {
  add(x, added, 1.0f, R * D);
  if (!pre_norm) normalize_rows(norm, x, R, D, x);
}

// Whether a query attends to a key, by their positions.
bool within_window(const Heads& heads, int64_t query, int64_t key) {
  return !heads.windowed || std::abs(query - key) <= heads.window || key < heads.sinks;
}

// Rotary positions: each pair of a head's first and second half is turned by the angle of its frequency at this position.
void rotate(const Heads& heads, int64_t position, int64_t count, float* x) {
  if (!heads.rotations) return;
  const int64_t half = heads.d_k / 2;
  const float *cosines = heads.rotations + position * heads.d_k, *sines = cosines + half;
  for (; count > 0; --count, x += heads.d_k)
    for (int64_t i = 0; i < half; ++i) {
      const float first = x[i], second = x[i + half];
      x[i] = first * cosines[i] - second * sines[i];
      x[i + half] = second * cosines[i] + first * sines[i];
    }
}

// One row over keys and values: softmax(qKᵀ · scale + bias)V of each head, its heads side by side.
REGARD_AVX2 void attend(const Heads& heads, const float* query, int64_t position, const std::vector<Key>& keys,
                        std::vector<float>& scores, float* out) {
  const int64_t S = keys.size(), wide = round_up(S, kLanes);
  const int64_t shared = heads.count / heads.key_value_count;  // neighboring heads share keys and values
  float* weights = grown(scores, wide);
  for (int64_t head = 0; head < heads.count; ++head) {
    const int64_t key = head / shared * heads.d_k, value = heads.key_width() + head / shared * heads.d_v;
    for (int64_t s = 0; s < S; ++s)
      weights[s] = heads.scale * dot(query + head * heads.d_k, keys[s].place + key, heads.d_k);
    if (heads.bias) {
      const float* bias = heads.bias + head * (2 * heads.length - 1) + heads.length - 1 - position;
      for (int64_t s = 0; s < S; ++s) weights[s] += bias[keys[s].position];
    }
    float most = kMinusInfinity;
    bool finite = true;  // a maximum may forget NaN
    for (int64_t s = 0; s < S; ++s) {
      most = std::max(most, weights[s]);
      finite = finite && std::isfinite(weights[s]);
    }
    std::fill(weights + S, weights + wide, kMinusInfinity);
    const float sum = exponentials(weights, wide, most, kOnlyMasked);
    const float factor = finite ? 1.0f / sum : NAN;
    float* mixed = out + head * heads.d_v;
    std::fill(mixed, mixed + heads.d_v, 0.0f);
    for (int64_t s = 0; s < S; ++s) add(mixed, keys[s].place + value, weights[s] * factor, heads.d_v);
  }
}

REGARD_AVX2 void relu(float* x, int64_t size) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) max(Vec::zero(), Vec::load(x + i)).store(x + i);  // NaN stays NaN
  for (; i < size; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

float activate(float x, int32_t activation) {
  switch (activation) {
    case kGelu: return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
    case kGeluTanh: return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case kSilu: return x / (1.0f + std::exp(-x));
    default: return x < 0.0f ? 0.0f : x;
  }
}

void feed_forward(const Layer& layer, int64_t R, int64_t D, Workspace& workspace, float* x) {
  const float* in = sublayer_input(layer.feed_forward_norm, layer.pre_norm, x, R, D, workspace);
  float* hidden = grown(workspace.wide, R * layer.expand.X);
  multiply(layer.expand, in, R, 1, workspace.quantized, hidden);
  const int64_t F = layer.contract.D;
  if (layer.gated) {  // the hidden layer and its gate side by side, overwritten by their product
    for (int64_t row = 0; row < R; ++row)
      for (int64_t f = 0; f < F; ++f)
        hidden[row * F + f] = hidden[row * 2 * F + f] * activate(hidden[row * 2 * F + F + f], layer.activation);
  } else if (layer.activation == kRelu) {
    relu(hidden, R * F);
  } else {
    for (int64_t i = 0; i < R * F; ++i) hidden[i] = activate(hidden[i], layer.activation);
  }
  float* added = grown(workspace.added, R * D);
  multiply(layer.contract, hidden, R, 1, workspace.quantized, added);
  add_sublayer(layer.feed_forward_norm, layer.pre_norm, added, R, D, x);
}

// The output projection of attention, and what follows it.
void leave_attention(const LinearPointers& output, const Norm& norm, bool pre_norm, const float* mixed, int64_t R, int64_t D,
                     Workspace& workspace, float* x) {
  float* added = grown(workspace.added, R * D);
  multiply(output, mixed, R, 1, workspace.quantized, added);
  add_sublayer(norm, pre_norm, added, R, D, x);
}

// Sentences from `first` to `last`, their rows one after the other, through all layers.
void encode(const Stack& stack, float* x, const int64_t* starts, int64_t first, int64_t last, Workspace& workspace) {
  const int64_t D = stack.D, start = starts[first], R = starts[last] - start;
  x += start * D;
  for (const Layer* layer = stack.layers; layer < stack.layers + stack.count; ++layer) {
    const Heads& heads = layer->heads;
    const float* in = sublayer_input(layer->self_attention_norm, layer->pre_norm, x, R, D, workspace);
    const int64_t X = layer->query_key_value.X;
    float* projected = grown(workspace.wide, R * X);
    multiply(layer->query_key_value, in, R, 1, workspace.quantized, projected);
    float* mixed = grown(workspace.heads, R * layer->output.D);
    for (int64_t sentence = first; sentence < last; ++sentence) {
      const int64_t begin = starts[sentence] - start, length = starts[sentence + 1] - starts[sentence];
      float* rows = projected + begin * X;
      for (int64_t at = 0; at < length; ++at) {
        rotate(heads, at, heads.count, rows + at * X);
        rotate(heads, at, heads.key_value_count, rows + at * X + heads.query_width());
      }
      for (int64_t at = 0; at < length; ++at) {
        if (at == 0 || heads.windowed) {
          workspace.keys.clear();
          for (int64_t key = 0; key < length; ++key)
            if (within_window(heads, at, key)) workspace.keys.push_back({rows + key * X + heads.query_width(), key});
        }
        attend(heads, rows + at * X, at, workspace.keys, workspace.scores, mixed + (begin + at) * layer->output.D);
      }
    }
    leave_attention(layer->output, layer->self_attention_norm, layer->pre_norm, mixed, R, D, workspace, x);
    feed_forward(*layer, R, D, workspace, x);
  }
  if (stack.final_norm) normalize_rows(*stack.final_norm, x, R, D, x);
}

// The first N rows of each sentence from `first` to `last`, one position further.
struct Step {
  const Stack& stack;
  const DecoderState& state;
  int64_t N, first, last;
  Workspace& workspace;

  int64_t rows() const { return (last - first) * N; }

  void run(float* x) const {
    x += first * N * stack.D;
    for (int64_t index = 0; index < stack.count; ++index) {
      self_attention(index, x);
      if (stack.layers[index].cross_attention) cross_attention(index, x);
      feed_forward(stack.layers[index], rows(), stack.D, workspace, x);
    }
    if (stack.final_norm) normalize_rows(*stack.final_norm, x, rows(), stack.D, x);
  }

  void self_attention(int64_t index, float* x) const {
    const Layer& layer = stack.layers[index];
    const Heads& heads = layer.heads;
    const int64_t R = rows(), X = layer.query_key_value.X, width = heads.key_value_width();
    const float* in = sublayer_input(layer.self_attention_norm, layer.pre_norm, x, R, stack.D, workspace);
    float* projected = grown(workspace.wide, R * X);
    multiply(layer.query_key_value, in, R, 1, workspace.quantized, projected);
    float* mixed = grown(workspace.heads, R * layer.output.D);
    for (int64_t sentence = first; sentence < last; ++sentence) {
      float* past = state.past[index] + sentence * state.capacity * state.rows * width;
      const int64_t now = state.positions[sentence];
      for (int64_t n = 0; n < N; ++n) {
        const int64_t row = (sentence - first) * N + n;
        float *query = projected + row * X, *key_value = query + heads.query_width();
        rotate(heads, now, heads.count, query);
        rotate(heads, now, heads.key_value_count, key_value);
        std::copy_n(key_value, width, past + (now * state.rows + n) * width);
        const int32_t* ancestors = state.ancestors + (sentence * state.rows + n) * state.capacity;
        workspace.keys.clear();
        for (int64_t t = 0; t < now; ++t)
          if (within_window(heads, now, t)) workspace.keys.push_back({past + (t * state.rows + ancestors[t]) * width, t});
        workspace.keys.push_back({past + (now * state.rows + n) * width, now});
        attend(heads, query, now, workspace.keys, workspace.scores, mixed + row * layer.output.D);
      }
    }
    leave_attention(layer.output, layer.self_attention_norm, layer.pre_norm, mixed, R, stack.D, workspace, x);
  }

  void cross_attention(int64_t index, float* x) const {
    const Layer& layer = stack.layers[index];
    const Heads& heads = layer.source_heads;
    const int64_t R = rows(), width = heads.key_value_width();
    const float* in = sublayer_input(layer.cross_attention_norm, layer.pre_norm, x, R, stack.D, workspace);
    float* queries = grown(workspace.wide, R * heads.query_width());
    multiply(layer.source_query, in, R, 1, workspace.quantized, queries);
    float* mixed = grown(workspace.heads, R * layer.source_output.D);
    for (int64_t sentence = first; sentence < last; ++sentence) {
      const float* source = state.source[index] + sentence * state.source_capacity * width;
      workspace.keys.clear();
      for (int64_t s = 0; s < state.source_lengths[sentence]; ++s) workspace.keys.push_back({source + s * width, s});
      for (int64_t row = (sentence - first) * N; row < (sentence - first + 1) * N; ++row)
        attend(heads, queries + row * heads.query_width(), 0, workspace.keys, workspace.scores,
               mixed + row * layer.source_output.D);
    }
    leave_attention(layer.source_output, layer.cross_attention_norm, layer.pre_norm, mixed, R, stack.D, workspace, x);
  }
};

// Whether the tables of positions are long enough.
void check_length(const Stack& stack, int64_t length) {
  for (const Layer* layer = stack.layers; layer < stack.layers + stack.count; ++layer)
    require(!(layer->heads.rotations || layer->heads.bias) || length <= layer->heads.length,
            "a sequence beyond the tables of its positions");
}

void check(const Stack& stack) {
  for (const Layer* layer = stack.layers; layer < stack.layers + stack.count; ++layer) {
    require(kRelu <= layer->activation && layer->activation <= kSilu, "an activation that the kernels do not have");
    require(layer->contract.D * (layer->gated ? 2 : 1) == layer->expand.X, "the two feed-forward matrices do not fit");
    for (const Heads* heads : {&layer->heads, layer->cross_attention ? &layer->source_heads : &layer->heads})
      require(heads->key_value_count > 0 && heads->count % heads->key_value_count == 0,
              "query heads must be a multiple of key/value heads");
  }
}

}  // namespace
}  // namespace regard

extern "C" {

// The input of a stack: each token's row of a table, scaled, and its position's row of another, if there is one.
int regard_embed(const float* token_table, const float* position_table, const int64_t* tokens, const int64_t* positions,
                 int64_t R, int64_t D, float scale, float* x) {
  return regard::guarded([=] {
    regard::require(R >= 0 && D >= 0, "sizes must not be negative");
    for (int64_t row = 0; row < R; ++row) {
      const float* token = token_table + tokens[row] * D;
      const float* position = position_table ? position_table + positions[row] * D : nullptr;
      for (int64_t d = 0; d < D; ++d) x[row * D + d] = token[d] * scale + (position ? position[d] : 0.0f);
    }
  });
}

// Encode B sentences: x holds their rows, embedded, sentence b from starts[b] to starts[b + 1]; states come in their place.
int regard_encode(const regard::Stack* stack, float* x, const int64_t* starts, int64_t B, int64_t threads) {
  using namespace regard;
  const auto encode_some = [=](int64_t first, int64_t last) {
    thread_local Workspace workspace;
    while (first < last) {
      int64_t next = first + 1;
      while (next < last && starts[next + 1] - starts[first] <= kRows) ++next;
      encode(*stack, x, starts, first, next, workspace);
      first = next;
    }
  };
  return guarded([&] {
    require(B >= 0, "the number of sentences must not be negative");
    check(*stack);
    for (int64_t b = 0; b < B; ++b) check_length(*stack, starts[b + 1] - starts[b]);
    parallel_for(B, std::min(threads, starts[B] / kMinRows), encode_some);
  });
}

// Take N rows of each of B sentences one token further: x holds them, embedded; their states come in their place.
int regard_step(const regard::Stack* stack, const regard::DecoderState* state, int64_t B, int64_t N, int64_t threads,
                float* x) {
  using namespace regard;
  const int64_t sentences = std::max<int64_t>(1, kRows / std::max<int64_t>(1, N));  // at a time
  const auto step_some = [=](int64_t first, int64_t last) {
    thread_local Workspace workspace;
    for (; first < last; first += sentences)
      Step{*stack, *state, N, first, std::min(last, first + sentences), workspace}.run(x);
  };
  return guarded([&] {
    require(B >= 0 && 0 <= N && N <= state->rows, "there are fewer rows of a sentence than are to be decoded");
    check(*stack);
    for (int64_t b = 0; b < B; ++b) {
      require(0 <= state->positions[b] && state->positions[b] < state->capacity, "a position beyond the capacity of the cache");
      check_length(*stack, state->positions[b] + 1);
    }
    parallel_for(B, std::min(threads, B * N / kMinRows), step_some);
  });
}
}
