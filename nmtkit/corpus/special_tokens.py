"""The four ids that are no subword, the same in every vocabulary; defined here alone."""

PAD_ID = 0  # fills rows to a fixed capacity; never read, never predicted
# What the decoder reads before the first target token.
# Deviation: its embedding is learned; the paper's published code has a vector of zeros there.
BOS_ID = 1
EOS_ID = 2  # ends every source and every target
UNK_ID = 3  # a character that the training text does not have, or only elsewhere in words

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
