"""Text in and out: tokenizers, corpora, encoded shards, batches."""

from typing import Annotated

from pydantic import Field

from regard.text.batches import draw_examples as draw_examples
from regard.text.batches import padded as padded
from regard.text.batches import plan_batches as plan_batches
from regard.text.corpora import Corpus as Corpus
from regard.text.corpora import JsonLines as JsonLines
from regard.text.corpora import ParallelFiles as ParallelFiles
from regard.text.corpora import TabSeparated as TabSeparated
from regard.text.dates import Dates as Dates
from regard.text.shards import EncodedCorpus as EncodedCorpus
from regard.text.shards import encode_corpus as encode_corpus
from regard.text.subword_dropout import SubwordDropout as SubwordDropout
from regard.text.tokenizer import Tokenizer as Tokenizer

AnyCorpus = Annotated[ParallelFiles | TabSeparated | JsonLines | Dates, Field(discriminator="kind")]
"""A corpus of any kind, as a run file names it."""
