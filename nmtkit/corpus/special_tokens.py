"""Special token ids, the same in every vocabulary.

They have a module of their own because many packages need them, and few of these a subword library.
"""

PAD_ID = 0  # fills padded batches; never read, never predicted
# The decoder reads it before the first target token.
# Deviation: its embedding is learned; the paper's published code has a vector of zeros there.
BOS_ID = 1
EOS_ID = 2  # ends every source and every target
UNK_ID = 3  # a character that the training text does not have, or only elsewhere in words

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
