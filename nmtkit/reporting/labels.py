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
        words = labels[0].split(" ")
        for label in labels[1:]:
            words = [word for word in words if word in label.split(" ")]
        group_words.append(words)
    if len(group_words) == 1:
        return [" ".join(words) for words in group_words]

    names = []
    for words in group_words:
        differing = []
        for word in words:
            if not all(word in other_words for other_words in group_words):
                differing.append(word)
        names.append(" ".join(differing or words[:1]))
    if len(set(names)) < len(names):  # too short
        return [" = ".join(labels) for labels in groups]
    return names
