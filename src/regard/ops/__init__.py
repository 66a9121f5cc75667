"""The equations of the Transformer, as pure functions of tensors.

A tensor's shape is in its name, one letter an axis, the same letters in the whole project:

| letter | size of                             | in equations |
| ------ | ----------------------------------- | ------------ |
| B      | batch                               |              |
| T      | target, or queries                  | T            |
| S      | source, or keys                     | T′           |
| D      | model                               | d_model      |
| H      | heads                               | P, or h      |
| G      | key and value heads, where fewer    |              |
| K      | key, of one head                    | d_k          |
| V      | value, of one head                  | d_v          |
| F      | hidden layer of the feed-forward    |              |
| N      | beams                               |              |
| W      | vocabulary                          | Vocab        |
| L      | layers                              |              |
| C      | block of positions                  |              |
| P      | passes over the same rows           |              |
| Y      | labels of a sequence                |              |

So `weights_BHTS` says for each sentence, head and query how much it attends to each key.
"""

from regard.ops.attention import attention as attention
from regard.ops.attention import fused_attention as fused_attention
from regard.ops.attention import reference_attention as reference_attention
from regard.ops.dropout import applied_rate as applied_rate
from regard.ops.dropout import dropout as dropout
from regard.ops.losses import label_smoothed_cross_entropy as label_smoothed_cross_entropy
from regard.ops.losses import r_drop_loss as r_drop_loss
from regard.ops.masks import Causal as Causal
from regard.ops.masks import KeyLengths as KeyLengths
from regard.ops.masks import Mask as Mask
from regard.ops.masks import causal_mask as causal_mask
from regard.ops.masks import padding_mask as padding_mask
from regard.ops.normalization import layer_norm as layer_norm
from regard.ops.normalization import post_norm_residual as post_norm_residual
from regard.ops.normalization import pre_norm_residual as pre_norm_residual
from regard.ops.normalization import rms_norm as rms_norm
from regard.ops.positions import sinusoidal_positions as sinusoidal_positions
