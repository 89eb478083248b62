"""Short names of runs, for legends and the heads of tables."""

from collections.abc import Sequence


def short_labels(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return a short name for every group of labels: the words that distinguish it from others.

    The first word names a group that has no such words, as that of a recipe without overrides.

    Args:
        groups: The labels of runs, such as "demo max_steps=60 beam_size=1". Runs of a group share
            a training, so that their curve is named by the words that all of them have.
    """
    group_words = []
    for labels in groups:
        label_words = [label.split(" ") for label in labels]
        group_words.append(_common_words(label_words))
    if len(group_words) == 1:
        return [" ".join(group_words[0])]

    names = []
    everywhere = _common_words(group_words)
    for words in group_words:
        differing = [word for word in words if word not in everywhere]
        names.append(" ".join(differing or words[:1]))
    # Names that are too short to distinguish the groups are replaced by all labels.
    if len(set(names)) < len(names):
        return [" = ".join(labels) for labels in groups]
    return names


def _common_words(texts: Sequence[Sequence[str]]) -> list[str]:
    """Return the words of the first text that all others have, in its order."""
    common = list(texts[0])
    for words in texts[1:]:
        common = [word for word in common if word in words]
    return common
