"""The dependencies of a recipe's artifacts: the texts and bundles that it names, and fingerprints.

They follow from the recipe and its inputs, and not from what exists in a folder of artifacts.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nmtkit.config.recipe import BpeConfig, BundleConfig, Recipe
from nmtkit.evaluation.seed import DEFAULT_SEED, SEED, seed
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.store.manifests import compute_fingerprint

if TYPE_CHECKING:
    from nmtkit.decoding.bundle import Bundle

# The stages in order, and the sections of the recipe that they depend on in addition to those of
# the stages before them.
STAGES: Mapping[str, tuple[str, ...]] = {
    "prepare": ("corpus", "subword"),
    "train": ("model", "training"),
    "average": ("averaging", "decoding"),
    "translate": ("test",),
    "score": ("scoring",),
}
# The keys in these sections that name text. A stage depends on its content, not on its path.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("train", "dev", "drop_held_out"),
    "translate": ("sets",),
}
# The key that names a bundle, with its section. A stage depends on the content of the bundle.
BUNDLES: Mapping[str, tuple[str, str]] = {
    "prepare": ("subword", "path"),
    "train": ("training", "start_from"),
}


class Dependencies:
    """The texts and bundles of a recipe, and the fingerprints of its artifacts.

    Attributes:
        recipe: The recipe with its overrides.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Take a recipe with its overrides; nothing is read."""
        self.recipe = recipe
        self._depends: dict[str, dict[str, Any]] = {}  # by stage

    @cached_property
    def corpora(self) -> dict[str, tuple[Corpus, ...]]:
        """The corpora of the recipe, by the key that names them."""
        corpus = self.recipe.corpus
        names = {
            "train": corpus.train,
            "dev": (corpus.dev,),
            "drop_held_out": corpus.drop_held_out,
            "sets": self.recipe.test.sets,
        }
        langs = (corpus.src_lang, corpus.tgt_lang)
        # No text is read here: the corpora open their files when their pairs are needed.
        corpora = {}
        for key, sources in names.items():
            corpora[key] = tuple(find_corpus(source, *langs) for source in sources)
        return corpora

    @cached_property
    def bundles(self) -> "dict[str, Bundle]":
        """The bundles that the recipe builds on, by the stage that reads them."""
        bundles = {}
        for stage, (section, key) in BUNDLES.items():
            path = getattr(getattr(self.recipe, section), key, None)
            if path is not None:
                from nmtkit.stages.fine_tuning import open_parent  # imports the readers of text

                bundles[stage] = open_parent(path, self.recipe)
        return bundles

    def depends_on(self, stage: str) -> dict[str, Any]:
        """Return everything that an artifact of `stage` depends on, and its fingerprint hashes."""
        # Most methods need this, and it hashes files of text, so it is computed once.
        if stage in self._depends:
            return self._depends[stage]
        depends: dict[str, Any] = {}
        for name in STAGES[stage]:
            depends[name] = self.recipe.section(name)

        # The identities of texts and bundles replace their names and paths.
        for key in INPUTS.get(stage, ()):
            for section in STAGES[stage]:
                depends[section].pop(key, None)
            identities = [corpus.identity() for corpus in self.corpora[key]]
            depends.setdefault("inputs", {})[key] = identities
        bundle = self.bundles.get(stage)
        if bundle is not None:
            section, key = BUNDLES[stage]
            del depends[section][key]
            files = bundle.artifact.manifest.files
            depends["bundle"] = {name: file.sha256 for name, file in files.items()}

        if stage == "translate":
            # The artifact has a folder for each set, which is named after it.
            depends["test"]["names"] = [corpus.name for corpus in self.corpora["sets"]]
        if stage == "score" and seed() != DEFAULT_SEED:
            # The resampling of confidence intervals depends on it.
            depends["seed"] = seed()
        # Weights of training corpora are part of [corpus], but only `train` depends on them.
        weights = self.recipe.corpus.weights
        if stage == "train" and set(weights) != {1.0}:
            depends["inputs"] = {"weights": weights}
        upstream = upstream_stage(stage)
        if upstream is not None:
            depends["upstream"] = {upstream: self.fingerprint(upstream)}
        self._depends[stage] = depends
        return depends

    def fingerprint(self, stage: str) -> str:
        """Return the fingerprint of the artifact of `stage`, which is the name of its folder."""
        return compute_fingerprint(stage, self.depends_on(stage))

    def remote_files(self, stage: str) -> list[RemoteFile]:
        """Return the downloads of the texts that `stage` reads."""
        files: list[RemoteFile] = []
        for key in INPUTS.get(stage, ()):
            for corpus in self.corpora[key]:
                files += corpus.downloads
        return files

    def variables(self) -> list[str]:
        """Return the names of the environment variables that the artifacts depend on."""
        # A path in a recipe may begin with a variable, as in "$DATA/train.en". JSON escapes
        # everything that is not ASCII, also parts of a path that are not Unicode.
        text = json.dumps(self.recipe.model_dump(mode="json"))
        names = re.findall(r'"\$\{?(\w+)', text)
        names.append(SEED)
        return list(dict.fromkeys(names))

    def expected_vocabulary(self) -> int:
        """Estimate the size of the vocabulary before it is learned."""
        subword = self.recipe.subword
        if isinstance(subword, BpeConfig):
            # The characters of the text come on top: 37,000 tokens for 32,000 merges on news.
            return round(subword.n_merges * 37 / 32)
        if isinstance(subword, BundleConfig):
            return self.bundles["prepare"].text.subword.n_tokens
        return subword.n_tokens


def upstream_stage(stage: str) -> str | None:
    """Return the stage whose artifact `stage` reads, or None for the first stage."""
    names = list(STAGES)
    index = names.index(stage)
    return None if index == 0 else names[index - 1]
