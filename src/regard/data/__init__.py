"""Text in and out: tokenizers, corpora, encoded shards, batches."""

from typing import Annotated

from pydantic import Field

from regard.data.babi import Babi as Babi
from regard.data.batching import draw_examples as draw_examples
from regard.data.batching import padded as padded
from regard.data.batching import plan_batches as plan_batches
from regard.data.corpora import Corpus as Corpus
from regard.data.corpora import JsonLines as JsonLines
from regard.data.corpora import ParallelFiles as ParallelFiles
from regard.data.corpora import TabSeparated as TabSeparated
from regard.data.corpora import TextFiles as TextFiles
from regard.data.dates import Dates as Dates
from regard.data.examples import Answer as Answer
from regard.data.examples import Example as Example
from regard.data.similarity import SimilarDocuments as SimilarDocuments
from regard.data.squad import Squad as Squad
from regard.data.subword_dropout import SubwordDropout as SubwordDropout
from regard.data.token_store import EncodedCorpus as EncodedCorpus
from regard.data.token_store import encode_corpus as encode_corpus
from regard.data.tokenizer import Tokenizer as Tokenizer

AnyCorpus = Annotated[
    ParallelFiles | TabSeparated | JsonLines | TextFiles | Squad | Babi | Dates, Field(discriminator="kind")
]
"""A corpus of any kind, as a run file names it."""
