"""From an OPUS-MT folder to a fine-tuned model for transformers, as a user types it."""

from pathlib import Path
from xml.sax.saxutils import escape

import pytest
import torch
from marian_models import TAGS, demo_lines, write_folder

from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.torch_engine import load_model
from nmtkit.fast.accelerate import accelerate
from system.command import artifact, done, nmtkit, read_lines, sentence

N_PAIRS = 400
SETTINGS = [
    "training.max_steps=40",
    "training.checkpoint_every_steps=10",
    "training.dev_every_steps=10",
    "training.learning_rate_scale=0.5",
    "training.warmup_steps=10",
    "averaging.n_checkpoints=1",
    "decoding.max_extra_tokens=2",
]


def write_memory(path: Path) -> None:
    """Write the first pairs of the demo corpus as a translation memory."""
    units = []
    pairs = zip(demo_lines("train.en", N_PAIRS), demo_lines("train.de", N_PAIRS), strict=True)
    for src, tgt in pairs:
        variants = "".join(
            f'<tuv xml:lang="{lang}"><seg>{escape(line)}</seg></tuv>'
            for lang, line in (("en", src), ("de", tgt))
        )
        units.append(f"<tu>{variants}</tu>\n")
    header = '<header srclang="en" datatype="plaintext" segtype="sentence"/>'
    body = "".join(units)
    path.write_text(f'<tmx version="1.4">{header}<body>{body}</body></tmx>\n', encoding="utf-8")


def dev_nll(bundle: Path) -> float:
    """The mean negative log-likelihood of the development set, in nats per token."""
    opened = open_bundle(bundle)
    model = accelerate(load_model(opened, torch.device("cpu")))
    src = [opened.text.encode(line) for line in demo_lines("dev.en", 60)]
    tgt = [opened.text.encode_target(line) for line in demo_lines("dev.de", 60)]
    forced = force_ids([model], src, tgt, align=False)
    log_probs = [log_prob for result in forced for log_prob in result.log_probs]
    return -sum(log_probs) / len(log_probs)


def test_opus_model_is_tuned_and_exported(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_folder(tmp_path / "opus-mt-en-de")
    write_memory(tmp_path / "memory.tmx")
    assert done(nmtkit(tmp_path, "import", "opus-mt-en-de", "parent")).out == "parent\n"
    done(nmtkit(tmp_path, "new", "mine", "--from", "parent", "--tmx", "memory.tmx"))
    options = ["./mine.toml", *(f"--set={setting}" for setting in SETTINGS)]
    done(nmtkit(tmp_path, "run", *options, "--workers=1"))
    tuned = artifact(tmp_path, "average")
    assert dev_nll(tuned) < dev_nll(tmp_path / "parent") - 0.5

    done(nmtkit(tmp_path, "export", str(tuned), "exported", "--format", "huggingface"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "exported").eval()
    bundle = open_bundle(tuned)
    ours = load_model(bundle, torch.device("cpu"))
    for src_line, tgt_line in zip(demo_lines("dev.en", 5), demo_lines("dev.de", 5), strict=True):
        batch = tokenizer([src_line], text_target=[tgt_line], return_tensors="pt")
        src = bundle.text.encode(src_line)
        tgt = bundle.text.encode_target(tgt_line)
        assert batch["input_ids"].tolist() == [src]
        assert batch["labels"].tolist() == [[*tgt, EOS_ID]]
        with torch.no_grad():
            log_probs = theirs(**batch).logits[0].log_softmax(-1)
        expected = log_probs.gather(1, batch["labels"][0][:, None])[:, 0]
        (forced,) = force_ids([accelerate(ours)], [src], [tgt], align=False)
        torch.testing.assert_close(torch.tensor(forced.log_probs), expected, atol=1e-4, rtol=0)

    lines = [*demo_lines("test.en", 3), f"{TAGS[0]} {demo_lines('test.en', 4)[3]}"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for engine in ("torch", "ctranslate2"):
        command = ["translate", "--bundle", str(tuned), "--engine", engine]
        done(nmtkit(tmp_path, *command, "--format", "fairseq", "-i", "in.txt", "-o", engine))
        rows = [row.split("\t") for row in read_lines(tmp_path / engine)]
        sources = [row[1].split(" ") for row in rows if row[0].startswith("S-")]
        expected_ids = [bundle.text.encode(line)[:-1] for line in lines]
        assert sources == [bundle.text.subword.pieces(ids) for ids in expected_ids]
        assert sources[-1][0] == TAGS[0]


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "opus")
    refused = nmtkit(tmp_path, "import", "opus", "ours", "--codes", "opus/source.spm")
    assert "--codes" in sentence(refused)
    (tmp_path / "opus" / "tokenizer_config.json").unlink()
    assert "--lang" in sentence(nmtkit(tmp_path, "import", "opus", "ours"))
    refused = nmtkit(tmp_path, "import", "opus/model.safetensors", "ours")
    assert "pass --codes and --lang" in sentence(refused)
    refused = nmtkit(tmp_path, "import", "nowhere", "ours", "--lang", "en-de")
    assert "nowhere" in sentence(refused)
    assert not (tmp_path / "ours").exists()
