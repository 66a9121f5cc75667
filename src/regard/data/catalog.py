"""Corpora by name: where each file is published, what it must hold, under which license."""

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

    @property
    def archive(self) -> str | None:
        """The name of the archive that it is a member of."""
        return None if self.member is None or self.url is None else self.url.rpartition("/")[2]


@dataclass(frozen=True)
class PublishedCorpus:
    """A corpus with its license."""

    name: str
    about: str
    license: str
    files: tuple[PublishedFile, ...]


_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
_SCAN = "https://raw.githubusercontent.com/brendenlake/SCAN/master"
_COGS = "https://raw.githubusercontent.com/najoungkim/COGS/main/data"
_CODE = "https://raw.githubusercontent.com/microsoft/CodeXGLUE/main/Code-Code/code-to-code-trans/data"
_XQUAD = "https://raw.githubusercontent.com/google-deepmind/xquad/7d30520c717524000f0d9d2f9c10a069acd9d285"
_BABI = "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-1.tar.gz"


def published(name: str) -> PublishedCorpus:
    """Find a corpus by its name."""
    for corpus in CATALOG:
        if corpus.name == name:
            return corpus
    raise InputError(f"corpus {name!r} is not known; there are {', '.join(corpus.name for corpus in CATALOG)}")


_BABI_SUMS = {
    "qa1_single-supporting-fact_train": "c64ba9b1a49bbb111ffc4cd2ae4f129d25c012399dd7ade9679eea464b9afb05",
    "qa1_single-supporting-fact_test": "55acf66cef2f6d798e2aa1d056e1ec8f24e910ea9215b639450574321132959b",
    "qa2_two-supporting-facts_train": "a4978af5bc0dc30191810e7c9949aaa6eae939ed0f6beb9fcb5f4330c2a27860",
    "qa2_two-supporting-facts_test": "eff93fb9cd81ba02eb765772cf7cc269769ed44ec71cbbbc19cfb16ee5eba0f6",
    "qa3_three-supporting-facts_train": "a6e78019f36a02a7ed71fe6aaded0b563ff09c8deec392931801fcd9c6af4d60",
    "qa3_three-supporting-facts_test": "17795c977100baf8188f386522ae301b62d6c1a13efc01b3aea781e588b4d57f",
    "qa4_two-arg-relations_train": "c9370502d85fa382f32d1fea2111e817f81ae9e3e79eb2924a1a5392a90417fa",
    "qa4_two-arg-relations_test": "07f0ca18ddeea9eed4ba6d59e162adcb0ce44815721114b3540d92825509331e",
    "qa5_three-arg-relations_train": "086cd59c3ca9677bfac3d6a22ca5853c76a5c1fbae3159c7c4a6aef759a74ec0",
    "qa5_three-arg-relations_test": "ec825c1c8a76e63a31f0d7a7763cd63740e98332fa9bdf246a19068949bd5f97",
    "qa6_yes-no-questions_train": "5a133115ee35d475776df703ff605d145b11effbcdbf7e74861f9d5639246a5a",
    "qa6_yes-no-questions_test": "b108b16f1eccbd1c24df6dca2649079a7b2f10af7fd12d4c45a3393802de59e3",
    "qa7_counting_train": "dca03bd91876951c49f1c971c83c9dd55404de60201b7b6435451cf7ddb4751c",
    "qa7_counting_test": "a74d1f2b91329b2bae814d41cdac2fbdfdf0328562b7d8afa9a0fa576d461e27",
    "qa8_lists-sets_train": "058604df6f9440458317e8ae685d2b7b84261e1a80b4d6410a9140d16f81bf06",
    "qa8_lists-sets_test": "362a653c821a580fa315a85243b4f03bfa06fa7e0269b6f8e596f8fe6911646a",
    "qa9_simple-negation_train": "0c3b89921af0caea1c4059ee3f7b7f2a88869f924195a428da37820446b8c49f",
    "qa9_simple-negation_test": "63590aff3f89993db409f0e9a9eb39c2a5b9d5efff99b255d800a891b0044d9f",
    "qa10_indefinite-knowledge_train": "0b7691689447bab05476c5b48c44999b41e747c3978df69c18fdd87b60d6e8b3",
    "qa10_indefinite-knowledge_test": "fde8f20ed0b3ba979058ed391a566af34653f23baab5b2793ee37f87ef4e88b7",
    "qa11_basic-coreference_train": "9468de9a1f256f43dfda693a5d07182d21149a82b65f7c2451c64e9cff5eb138",
    "qa11_basic-coreference_test": "46f3290d0158ce1285a40cd2d793f5a65f86ae5000226e165cbc85a3dfeb2f6f",
    "qa12_conjunction_train": "45c2764bb2d3c8f699d35e9d9aa7958fcd96379c6e907116cdf74526c108bb25",
    "qa12_conjunction_test": "6437718f8f9801ce345869e910b896836cdc6fd2d01dc7b4d2df49730703b4b1",
    "qa13_compound-coreference_train": "533a391edbda743e4c99504de88b40cdded5b1d5ef454d1390f0863f748a4cc9",
    "qa13_compound-coreference_test": "76a25b684f23c9cc473d8cd1465506168b9a1ec8891cfc59d0bbd87e6a064990",
    "qa14_time-reasoning_train": "b7561cbc624205c9c2fdbb8c843cfa8ad90edd65e78bb223fc6dea8113662df8",
    "qa14_time-reasoning_test": "e3f0b19858ffbec3ed1e49076cc4d1295a89ce146c50318b862f13f202b3caf2",
    "qa15_basic-deduction_train": "e856ebfdcce4dd7d617c1d10f985e96a0850c0ca18e9a19a017cb710d135ed3d",
    "qa15_basic-deduction_test": "32b77e117fe9acf5f94906684e3b5206de0108e646c76e1da3e022896ec7ee94",
    "qa16_basic-induction_train": "a3448f8cbb8ece4d5c48fa3bb5dfc0d2d4ad82b3da50c8c09c5fbe02ea6806b9",
    "qa16_basic-induction_test": "d38f01e551f7148eb886b9248264098fe9e0e709fe6fdd1f1186451e1a105838",
    "qa17_positional-reasoning_train": "20083bf56ff74f0e7cf5e3e2f8c3905cdb8ef09293c3e8cf7a96ed8b45ae2277",
    "qa17_positional-reasoning_test": "9e1e0250ed4ec1831757fab26c04138f81ea557ebf6976a220db879cbed04bac",
    "qa18_size-reasoning_train": "18b7dcf52c9a0e87e4e7dd3d65b7e5a630de039645f52a1294197af7481d739d",
    "qa18_size-reasoning_test": "d34f70eb7228a276fcb3a7854174fe562c5634f4fb454a39fc3d1ad9934be3ef",
    "qa19_path-finding_train": "dcb788352a56effb7bea1449128f31cc9c342c8c327b6df2caeee0e379e6ad3a",
    "qa19_path-finding_test": "023e391f0d7f79c9e6ae1c46c093e2d0dbd50ab8fbd8965e037a75e3614c20e5",
    "qa20_agents-motivations_train": "29580ad55fb7b4b29ba014696056cc68f8f347dac3be88470fd692ad60150398",
    "qa20_agents-motivations_test": "bd3bde3788ac14ba0ae095078f7b820fbd2bfa6a34dba9d1d46a34afde9c2729",
}
"""The checksums of bAbI's files."""

CATALOG = (
    PublishedCorpus(
        "multi30k",
        "Image captions in English, German and French (Elliott et al. 2016).",
        "No license is stated for the text, and the images are for research only: for benchmarks, not for models that "
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
    PublishedCorpus(
        "babi",
        "Twenty tasks of questions about stories, 1,000 questions each for training and for testing (Weston et al. "
        "2015, version 1.1 in English).",
        "CC BY 3.0, Facebook, Inc. (LICENSE).",
        (
            *(
                PublishedFile(f"{name}.txt", sha256, _BABI, member=f"en/{name}.txt")
                for name, sha256 in _BABI_SUMS.items()
            ),
            PublishedFile(
                "LICENSE", "d12f09a636365a040fd581ebab6bf018d6fe61973c6d4862f841a6aca2f53efa", _BABI, member="LICENSE"
            ),
        ),
    ),
    PublishedCorpus(
        "java-csharp",
        "Methods in Java and the same ones in C#, one on each line (CodeXGLUE, code-to-code-trans; Lu et al. 2021).",
        "C-UDA 1.0: for computational use.",
        tuple(
            PublishedFile(f"{part}.{side}", sha256, f"{_CODE}/{part}.java-cs.txt.{side}")
            for part, side, sha256 in (
                ("train", "java", "397c44e7a0ad250849231a3beeb255ea54078e1cb62cf13359893d474025cb90"),
                ("train", "cs", "80013b5b5c7e973df52adec4944b895eaaee0944f09ab6179084631a15d36b7a"),
                ("valid", "java", "5cf92447fd81e126c7d791527f71d16dbcb91d3aa4aafda5c7d9d5c30d75a204"),
                ("valid", "cs", "513c430d61901a90895b22fb235c532dbdc26b84db9d825e1d04a5856a97aec1"),
                ("test", "java", "8e4c9db2467622c119366a89aa0ca798b5f72c11433e3ac3080df21e0e4e06f6"),
                ("test", "cs", "7a863a53cba15473d44ef2f7c99096370a204d4c1a54cc3d81c59d4a305756af"),
            )
        ),
    ),
    PublishedCorpus(
        "xquad",
        "Questions about paragraphs of Wikipedia, with answers that are spans of them, in English and German, in "
        "SQuAD's format (Artetxe et al. 2020): for scoring, too small to train on.",
        "CC BY-SA 4.0, google-deepmind/xquad.",
        tuple(
            PublishedFile(f"xquad.{language}.json", sha256, f"{_XQUAD}/xquad.{language}.json")
            for language, sha256 in {
                "de": "990b5d746746ed65ed4702ea5f35f99ffa4e2f1c390c07d003642acd937916f9",
                "en": "e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
            }.items()
        ),
    ),
    PublishedCorpus(
        "acl-titles",
        "Abstracts and titles of papers in computational linguistics from 2016 on: JSON lines with document and "
        "summary. Made from the ACL Anthology's metadata and not published by itself: --from DIR takes "
        "acl-titles.jsonl or acl-titles.jsonl.gz from a directory.",
        "CC BY 4.0, attribution to the ACL Anthology and the authors of the papers.",
        (PublishedFile("acl-titles.jsonl", "26f4d07f63cf04f38697ece823d819ce56c701e160add44f82c96d9e252d7409"),),
    ),
    PublishedCorpus(
        "synopsis",
        "Descriptions of Debian's packages and their synopses in a line: JSON lines with document and summary. Made "
        "from the package lists and not published by itself: --from DIR takes debian-synopsis.jsonl or "
        "debian-synopsis.jsonl.gz from a directory.",
        "The free-software license of each package.",
        (PublishedFile("debian-synopsis.jsonl", "b1be66e5b16d554824ea2bbb2baf3306050a89da3fa547b1148adc6040af5ed4"),),
    ),
    PublishedCorpus(
        "software-de-en",
        "Interfaces, manuals and package descriptions of free software, English, German and the source package "
        "separated by tabs, sorted by package. Made from Debian 12's packages, as ABOUT.txt tells, and not published "
        "by itself: --from DIR takes ABOUT.txt and software-de-en.tsv or software-de-en.tsv.gz from a directory.",
        "The licenses of the packages, most of them the GPL, listed in ABOUT.txt, which is to be kept with the corpus.",
        (
            PublishedFile("ABOUT.txt", "73b6ff492fbf6cfcb1397a35737efa1391e21558fce4398f2be3a067a30179ff"),
            PublishedFile("software-de-en.tsv", "d5ce5b77e99d154b254c9da218b355ccf7327e28826a4646f400f1472cc66a06"),
        ),
    ),
)
