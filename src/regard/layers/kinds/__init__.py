"""Kinds of attention other than softmax(QKᵀ/√d_k)V, most of them cheaper for long sequences."""

from regard.layers.kinds.kind import AttentionKind as AttentionKind
