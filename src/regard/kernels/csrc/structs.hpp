// The structs that Python fills: `kernels/bindings.py` declares the same ones, and compares sizes and offsets with
// `regard_layout` when the library is loaded. A field that is added here is added there and in `structs.cpp`.
#pragma once

#include <cstdint>

namespace regard {

// A matrix of floats as it lies in memory. One of the strides is 1.
struct MatrixView {
  const float* data;
  int64_t row_stride, column_stride;

  MatrixView from_row(int64_t r) const { return {data + r * row_stride, row_stride, column_stride}; }
  MatrixView from_column(int64_t c) const { return {data + c * column_stride, row_stride, column_stride}; }
};

// A packed int8 weight matrix, X × D.
struct LinearPointers {
  const int8_t* packed;
  const float* scales;  // of the outputs
  const int32_t* sums;  // of each output's weights
  const float* bias;    // or null
  int64_t X, D;
};

struct Norm {
  const float* weight;
  const float* bias;  // or null
  float eps;
  int32_t centered;  // LayerNorm subtracts the mean, RMSNorm does not
};

struct Heads {
  int64_t count, key_value_count, d_k, d_v;
  float scale;
  int32_t windowed;        // whether only some keys are attended to: those up to `window` positions away, and the first `sinks`
  int64_t window, sinks;
  const float* rotations;  // or null: for each position the cosines, then the sines, by which its queries and keys are rotated
  const float* bias;       // or null: for each head, by key position - query position + length - 1, what is added to its score
  int64_t length;          // positions that these tables are for

  int64_t query_width() const { return count * d_k; }
  int64_t key_width() const { return key_value_count * d_k; }
  int64_t key_value_width() const { return key_value_count * (d_k + d_v); }
};

struct Layer {
  Heads heads, source_heads;
  Norm self_attention_norm, cross_attention_norm, feed_forward_norm;
  LinearPointers query_key_value, output;
  LinearPointers source_query, source_output;
  LinearPointers expand, contract;
  int32_t pre_norm, cross_attention, activation, gated;
};

struct Stack {
  const Layer* layers;
  int64_t count, D;
  const Norm* final_norm;  // or null
};

struct DecoderState {
  float* const* past;              // for each layer: sentences × capacity × rows × width, what each row wrote at each position
  const int32_t* ancestors;        // sentences × rows × capacity: which row wrote what is a row's past at each position
  const int64_t* positions;        // for each sentence: where its rows write now
  int64_t rows, capacity;          // capacity: in positions
  const float* const* source;      // for each layer: sentences × source_capacity × width
  const int64_t* source_lengths;   // for each sentence
  int64_t source_capacity;
};

// Which elements dropout keeps: a pure function of a row's start and an element's place, as in `ops/rng.py`.
struct DropoutStream {
  const uint64_t* starts;  // one for each row, from which its random words are counted; null: everything is kept
  int64_t elements;        // of a row
  int32_t threshold;       // a random byte below it drops its element
  float scale;             // of what is kept
};

// LayerNorm(x + Dropout(y))
struct AddNorm {
  int64_t B, T, D;  // D is a multiple of 8
  DropoutStream dropout;
  const float *x, *y;
  float *sums, *moments;  // B × T × D: x + Dropout(y); B × T × 2: their mean and one over their standard deviation
  const float *gamma, *beta;
  float eps;
};

struct AddNormGradients {
  const float* output;
  float *x, *y, *gamma, *beta;
};

// The rows of each head of a batch.
struct HeadsView {
  float* data;
  int64_t batch_stride, head_stride, row_stride;

  float* at(int64_t b, int64_t row, int64_t h) const {
    return data + b * batch_stride + row * row_stride + h * head_stride;
  }
};

// Attention over short sequences, and over long ones with a window or a bias by distance.
struct Attention {
  int64_t B, H, G, T, S, K, V;  // H query heads share G key/value heads; K and V are multiples of 8
  float scale;
  int32_t causal;          // query t attends to keys up to t; T = S
  const uint8_t* allowed;  // B × S: which keys may be attended to; or null
  // Where each of B sequences begins in one row of T queries and S keys, and where the last ends; or null, then each row of
  // the batch is a sequence.
  const int64_t *query_cu_seqlens, *key_cu_seqlens;
  int64_t window;     // query t attends to keys from t - window to t + window; 0: to all
  const float* bias;  // H rows: what is added to the score of query t and key s at T - 1 + s - t; or null
  int64_t bias_stride;  // of the rows, which are 2 · T + 7 numbers long
  HeadsView query, key, value, output;
  float* softmax_stats;  // B × T × H × 2: the largest score of each query, and one over the sum of the exponentials
};

// Of more than 64 queries, those of keys and values are added to what is there.
struct AttentionGradients {
  HeadsView output, query, key, value;
  float* bias;  // B × H rows, likewise, or null
};

// y = xWᵀ + b with x and W rounded to int8 for this product.
struct Int8Matmul {
  int64_t R, D, X;
  MatrixView x;       // R × D
  MatrixView weight;  // X × D
  const float* bias;  // X, or null
  float* y;           // R × X
  int32_t stochastic_rows, stochastic_weights;  // rounded stochastically, or to the nearest step
};

// y = xWᵀ + b in float32.
struct Sgemm {
  int64_t R, D, X;
  MatrixView x;       // R × D
  MatrixView weight;  // X × D
  const float* bias;  // X, or null
  float* y;           // R × X
  float* row_sums;    // of x, R, or null
  int32_t add;        // to what is in y already
};

// The sampled-gradient loss of P passes, one or two, each of R rows, one behind the other.
struct SampledLoss {
  int64_t P, R, W, D;
  float* logits;          // P × R × W, overwritten; or null: they are computed here by an int8 matmul
  const int64_t* labels;  // R
  const int64_t* starts;  // P × R random words
  const float* states;    // P × R × D
  const float* weight;    // W × D
  const float* bias;      // W, or null; for logits that are computed here
  float smoothing, small, alpha;
  float* losses;           // R: the loss of each row, but for the mean of its logits
  float* state_gradient;   // P × R × D
  float* weight_gradient;  // W × D, to which is added
  float* bias_gradient;    // W, likewise, or null
};

// BPE merges, and the probability of leaving one out.
struct SubwordDropout {
  int64_t M;                      // merges
  const int64_t* pairs;           // M: left · 2³² + right, in ascending order
  const int64_t *ranks, *merged;  // M: when each was learned, and the token it makes
  const int64_t* letters;         // of all tokens, one behind the other
  const int64_t* letter_starts;   // where those of each token begin, and where the last ones end
  const uint8_t* kinds;           // of each token
  double log_dropped, log_kept;   // the logarithms of the probabilities that a merge is left out, and that it is made
};

}  // namespace regard
