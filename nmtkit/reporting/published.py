"""What the paper prints: Tables 2 and 4, with the literature's rows."""

from dataclasses import dataclass

EDITIONS = (
    "Transformer (big), English-French: 41.0 in the paper's first edition, 41.8 in later ones; the "
    "paper prints one cost for both languages"
)


@dataclass(frozen=True)
class Translated:
    """A row of Table 2: BLEU on newstest2014, and training cost in FLOPs."""

    model: str
    en_de: float | None = None
    en_fr: float | None = None
    en_de_flops: float | None = None
    en_fr_flops: float | None = None


TABLE_2 = (
    Translated("ByteNet", 23.75),
    Translated("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Translated("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Translated("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Translated("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Translated("Deep-Att + PosUnk ensemble", None, 40.4, None, 8.0e20),
    Translated("GNMT + RL ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Translated("ConvS2S ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Translated("Transformer (base)", 27.3, 38.1, 3.3e18, 3.3e18),
    Translated("Transformer (big)", 28.4, 41.0, 2.3e19, 2.3e19),
)


@dataclass(frozen=True)
class Parsed:
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    parser: str
    training: str
    f1: float


TABLE_4 = (
    Parsed("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    Parsed("Petrov et al. (2006)", "WSJ only", 90.4),
    Parsed("Zhu et al. (2013)", "WSJ only", 90.4),
    Parsed("Dyer et al. (2016)", "WSJ only", 91.7),
    Parsed("Transformer (4 layers)", "WSJ only", 91.3),
    Parsed("Zhu et al. (2013)", "semi-supervised", 91.3),
    Parsed("Huang & Harper (2009)", "semi-supervised", 91.3),
    Parsed("McClosky et al. (2006)", "semi-supervised", 92.1),
    Parsed("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    Parsed("Transformer (4 layers)", "semi-supervised", 92.7),
    Parsed("Dyer et al. (2016)", "generative", 93.3),
)
