// The layout of the shared structs as text, a line for each: its name and size, then the name, offset and size of each field.

#include "structs.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>

namespace regard {
namespace {

struct Field {
  const char* name;
  size_t offset, size;
};

std::string described(const char* name, size_t size, std::initializer_list<Field> fields) {
  std::string line = std::string(name) + ' ' + std::to_string(size);
  for (const Field& field : fields)
    line += std::string(" ") + field.name + ':' + std::to_string(field.offset) + ':' + std::to_string(field.size);
  return line + '\n';
}

#define STRUCT(name, ...)                                  \
  {                                                        \
    using S = name;                                        \
    layout += described(#name, sizeof(S), {__VA_ARGS__}); \
  }
#define FIELD(name) \
  Field { #name, offsetof(S, name), sizeof(S::name) }

std::string layout_of_all() {
  std::string layout;
  STRUCT(MatrixView, FIELD(data), FIELD(row_stride), FIELD(column_stride))
  STRUCT(LinearPointers, FIELD(packed), FIELD(scales), FIELD(sums), FIELD(bias), FIELD(X), FIELD(D))
  STRUCT(Norm, FIELD(weight), FIELD(bias), FIELD(eps), FIELD(centered))
  STRUCT(Heads, FIELD(count), FIELD(key_value_count), FIELD(d_k), FIELD(d_v), FIELD(scale), FIELD(windowed), FIELD(window),
         FIELD(sinks), FIELD(rotations), FIELD(bias), FIELD(length))
  STRUCT(Layer, FIELD(heads), FIELD(source_heads), FIELD(self_attention_norm), FIELD(cross_attention_norm),
         FIELD(feed_forward_norm), FIELD(query_key_value), FIELD(output), FIELD(source_query), FIELD(source_output),
         FIELD(expand), FIELD(contract), FIELD(pre_norm), FIELD(cross_attention), FIELD(activation), FIELD(gated))
  STRUCT(Stack, FIELD(layers), FIELD(count), FIELD(D), FIELD(final_norm))
  STRUCT(DecoderState, FIELD(past), FIELD(ancestors), FIELD(positions), FIELD(rows), FIELD(capacity), FIELD(source),
         FIELD(source_lengths), FIELD(source_capacity))
  STRUCT(DropoutStream, FIELD(starts), FIELD(elements), FIELD(threshold), FIELD(scale))
  STRUCT(AddNorm, FIELD(B), FIELD(T), FIELD(D), FIELD(dropout), FIELD(x), FIELD(y), FIELD(sums), FIELD(moments),
         FIELD(gamma), FIELD(beta), FIELD(eps))
  STRUCT(AddNormGradients, FIELD(output), FIELD(x), FIELD(y), FIELD(gamma), FIELD(beta))
  STRUCT(HeadsView, FIELD(data), FIELD(batch_stride), FIELD(head_stride), FIELD(row_stride))
  STRUCT(Attention, FIELD(B), FIELD(H), FIELD(G), FIELD(T), FIELD(S), FIELD(K), FIELD(V), FIELD(scale), FIELD(causal),
         FIELD(allowed), FIELD(query_cu_seqlens), FIELD(key_cu_seqlens), FIELD(window), FIELD(bias),
         FIELD(bias_stride), FIELD(query), FIELD(key), FIELD(value), FIELD(output), FIELD(softmax_stats))
  STRUCT(AttentionGradients, FIELD(output), FIELD(query), FIELD(key), FIELD(value), FIELD(bias))
  STRUCT(Int8Matmul, FIELD(R), FIELD(D), FIELD(X), FIELD(x), FIELD(weight), FIELD(bias), FIELD(y),
         FIELD(stochastic_rows), FIELD(stochastic_weights))
  STRUCT(Sgemm, FIELD(R), FIELD(D), FIELD(X), FIELD(x), FIELD(weight), FIELD(bias), FIELD(y), FIELD(row_sums),
         FIELD(add))
  STRUCT(SampledLoss, FIELD(P), FIELD(R), FIELD(W), FIELD(D), FIELD(logits), FIELD(labels), FIELD(starts),
         FIELD(states), FIELD(weight), FIELD(bias), FIELD(smoothing), FIELD(small), FIELD(alpha), FIELD(losses),
         FIELD(state_gradient), FIELD(weight_gradient), FIELD(bias_gradient))
  STRUCT(SubwordDropout, FIELD(M), FIELD(pairs), FIELD(ranks), FIELD(merged), FIELD(letters), FIELD(letter_starts),
         FIELD(kinds), FIELD(log_dropped), FIELD(log_kept))
  return layout;
}

}  // namespace
}  // namespace regard

extern "C" const char* regard_layout() {
  static const std::string layout = regard::layout_of_all();
  return layout.c_str();
}
