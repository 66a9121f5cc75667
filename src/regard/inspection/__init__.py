"""What attention did: explained step by step, and as pictures."""

from regard.inspection.attention_picture import draw_attention as draw_attention
from regard.inspection.explain import EXAMPLE as EXAMPLE
from regard.inspection.explain import Explanation as Explanation
from regard.inspection.explain import Step as Step
from regard.inspection.explain import explain_matrices as explain_matrices
from regard.inspection.explain import explain_sentence as explain_sentence
from regard.inspection.explain import worked_example as worked_example
from regard.inspection.pattern_picture import draw_pattern as draw_pattern
