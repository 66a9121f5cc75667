"""Corpora by name: where each file is published, what it must hold, under which licence."""

from dataclasses import dataclass

from regard.errors import InputError


@dataclass(frozen=True)
class PublishedFile:
    """A file of a corpus. The checksum is that of its text, whether it is compressed or not."""

    name: str
    sha256: str
    url: str | None = None
    """Where it can be downloaded; nowhere, if it was made from another."""
    member: str | None = None
    """Its name within the archive that the address leads to."""


@dataclass(frozen=True)
class PublishedCorpus:
    """A corpus with its licence."""

    name: str
    about: str
    licence: str
    files: tuple[PublishedFile, ...]


_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_SCAN = "https://raw.githubusercontent.com/brendenlake/SCAN/master"
_COGS = "https://raw.githubusercontent.com/najoungkim/COGS/main/data"


def published(name: str) -> PublishedCorpus:
    """Find a corpus by its name."""
    for corpus in CATALOGUE:
        if corpus.name == name:
            return corpus
    raise InputError(f"corpus {name!r} is not known; there are {', '.join(corpus.name for corpus in CATALOGUE)}")


CATALOGUE = (
    PublishedCorpus(
        "multi30k",
        "Image captions in English, German and French (Elliott et al. 2016).",
        "No licence is stated for the text, and the images are for research only: for benchmarks, not for models that "
        "are given away.",
        tuple(
            PublishedFile(f"{part}.{language}", sha256, f"{_MULTI30K}/{part}.{language}.gz")
            for part, sums in {
                "train": {
                    "de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
                    "en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
                    "fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
                },
                "val": {
                    "de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
                    "en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
                    "fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
                },
                "test_2016_flickr": {
                    "de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
                    "en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
                    "fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
                },
                "test_2017_flickr": {
                    "de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
                    "en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
                    "fr": "6f3764e31dac41e9455e612958bcfd4e877c5e15cd66df2c2b2be6d9bd83e5b6",
                },
                "test_2017_mscoco": {
                    "de": "58277df3c75f92f7145a11b910b553d1cf82c439249d4dc237c899609eafac22",
                    "en": "43051fdfa86fd5395182e718a94ca67b1b227b9f7c79596ff0f6b813216981d2",
                    "fr": "39cde3f43f32b0a6bf29ce4917a46329ff32e53070c2fac87506695a740ae0a0",
                },
            }.items()
            for language, sha256 in sums.items()
        ),
    ),
    PublishedCorpus(
        "multi30k-bpe10k",
        "The same in English and German, lower-cased, tokenised and cut into 10,000 subwords, as the published "
        "Transformer-Tiny was trained (Wu et al. 2021, LividWo/Revisit-MMT).",
        "As multi30k.",
        tuple(
            PublishedFile(name, sha256)
            for name, sha256 in {
                "train.de": "b2c74def7ec129f7ea7023a51501c77174c377ef06c6ccc2f031adcfb5cfadbd",
                "train.en": "0ffe3e3bac16e6aa33ef0dd6a7dca81587479b0d18dff0db2a92ac3f32b00c86",
                "valid.de": "eeb95680d6a06eafb13e3494eed9f9fa99783b892f4a3c72dd36e7ce2e000b68",
                "valid.en": "193d0d18fef5d1bc9d1cddafa13a644de3c5d6a24b45ac44476dcc5e96bfac6e",
                "test.2016.de": "375c20d50f4c486149a78dfcfb161a430a04ddabe2b7d150f0c7811dc455ac60",
                "test.2016.en": "13b5fe3f92f78c54446d66afcaaa0a00a33ab653a8411f16812c9c5ca3795d6d",
                "test.2017.de": "9deefbe5705b60c3b5a790146e232b411a0da0420fd194ed6f6ad3a2674340a0",
                "test.2017.en": "5252390a58d57bce8d6a69a973e4908e98c7b70d3fc7ccc9c3963747ae8b177d",
                "test.coco.de": "5cfc9d5e6511565c53c390598d7a69d14dd302c1a374a16c56959224c5a54d99",
                "test.coco.en": "82d825317109d12260cfd637a23d2bf7c564308546f56e341047b2067c0dba8b",
            }.items()
        ),
    ),
    PublishedCorpus(
        "tatoeba-de-en",
        "Everyday sentences, English and German separated by a tab (tatoeba.org by way of manythings.org/anki, "
        "edition of 2018-05-13).",
        "CC BY 2.0, attribution to tatoeba.org and manythings.org/anki.",
        (
            PublishedFile(
                "deu.txt",
                "a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b",
                "https://www.manythings.org/anki/deu-eng.zip",
                member="deu.txt",
            ),
        ),
    ),
    PublishedCorpus(
        "scan",
        "Commands and the actions that they ask for (Lake and Baroni 2018): the splits by length and at random.",
        "BSD, brendenlake/SCAN.",
        tuple(
            PublishedFile(f"{split}.{part}.txt", sha256, f"{_SCAN}/{split}_split/tasks_{part}_{split}.txt")
            for split, part, sha256 in (
                ("length", "train", "b034212dc7cf87ce62f3a067dd6ad49c4d5cd18d51d615d13825516bcb1ebbc2"),
                ("length", "test", "0760752ed34a75116ae11dcc1ee17526b7500060da1366540730fa24894d7db3"),
                ("simple", "train", "941bb8a088c5f53ceff12fde902dc008933cf0c4203cc672c47b5f79d73262dd"),
                ("simple", "test", "1fe1c8f5a19d0dc40e41bab94278f45f66f3dc415a978bd29855a23440610fc6"),
            )
        ),
    ),
    PublishedCorpus(
        "cogs",
        "Sentences and their logical forms (Kim and Linzen 2020), with a set for generalisation.",
        "MIT, najoungkim/COGS.",
        tuple(
            PublishedFile(f"{part}.tsv", sha256, f"{_COGS}/{part}.tsv")
            for part, sha256 in {
                "train": "220b3804b562c0156ee986eff1bdd15c27e52142549362a64f57baf86e304c78",
                "dev": "ab66388a309c7ac1ad210c781a6a0ce12281a9ef24619a12422a752cef61bc21",
                "test": "68f8e51e9f6d9cd22d64efe68dd21d7ea5ba327e9a2359481030161aea757035",
                "gen": "d013d9eee0bafc153f8decc85f42814ac97260f84964d980e1e2b84577b82361",
            }.items()
        ),
    ),
)
