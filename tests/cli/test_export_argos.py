"""Exported packages work in Argos Translate, without nmtkit."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.test_export import VOCABULARIES, bundle_of
from nmtkit import Translator
from nmtkit.cli.export import export
from nmtkit.store.manifests import write_manifest
from nmtkit.utils.errors import UserError

# Argos Translate downloads models that split sentences; here, a line is one sentence.
INSTALL = """
import json, sys, types
models = types.SimpleNamespace(list_models=lambda: ["en"])
detector = lambda *args, **options: types.SimpleNamespace(sentences=lambda text: [text])
sys.modules["minisbd"] = types.SimpleNamespace(SBDetect=detector, models=models)
sys.modules["stanza"] = types.SimpleNamespace()
from argostranslate import package, translate
package.install_from_path(sys.argv[1])
(installed,) = package.get_installed_packages()
texts = [translate.translate(line, "en", "de") for line in sys.argv[2:]]
print(json.dumps([str(installed), installed.get_readme(), *texts]))
"""


@pytest.fixture(scope="module")
def plain_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that copies plain text."""
    return bundle_of(tmp_path_factory.mktemp("plain") / "bundle", *VOCABULARIES["text"])


def test_argos_translates_as_nmtkit(plain_bundle: Path, tmp_path: Path) -> None:
    if find_spec("argostranslate") is None:
        pytest.skip("argostranslate is not installed")
    file = tmp_path / "it's en_de.argosmodel"
    export([str(plain_bundle), str(file)], "argos")
    lines = ["Hello!", "Hell !", "Hello Hell!"]
    folders = {name: str(tmp_path / name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    folders["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INSTALL, str(file), *lines],
        env=os.environ | folders | {"ARGOS_DEVICE_TYPE": "cpu", "ARGOS_COMPUTE_TYPE": "float32"},
        stdout=subprocess.PIPE,
        check=True,
    )
    name, readme, *texts = json.loads(process.stdout)
    translator = Translator(plain_bundle, device="cpu", engine="torch")
    assert texts == [translation.text for translation in translator.translate(lines)]
    assert texts[0] == "Hello!"
    assert name == "English \u2192 German"
    assert "argospm install" in readme


def test_argos_package_has_same_bytes(plain_bundle: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a.argosmodel", tmp_path / "new" / "a.argosmodel"]
    files[1].parent.mkdir()
    for file in files:
        export([str(plain_bundle), str(file)], "argos")
    assert files[0].read_bytes() == files[1].read_bytes()
    with zipfile.ZipFile(files[0]) as archive:
        names = archive.namelist()
        metadata = json.loads(archive.read("translate-en_de-nmtkit/metadata.json"))
    assert {name.split("/")[0] for name in names} == {"translate-en_de-nmtkit"}
    assert (metadata["from_code"], metadata["to_name"]) == ("en", "German")
    with pytest.raises(UserError, match="already exists"):
        export([str(plain_bundle), str(files[0])], "argos")
    with pytest.raises(UserError, match="argosmodel"):
        export([str(plain_bundle), str(tmp_path / "a.zip")], "argos")


@pytest.mark.parametrize(
    ("lang", "code"), [("zh-TW", "zt"), ("pt-BR", "pb"), ("zh", "zh"), ("deu", "de")]
)
def test_argos_codes_of_languages(lang: str, code: str, plain_bundle: Path, tmp_path: Path) -> None:
    place = tmp_path / "bundle"
    place.mkdir()
    for file in plain_bundle.iterdir():
        if file.name != "manifest.json":
            (place / file.name).write_bytes(file.read_bytes())
    tokenization = json.loads((place / "tokenization.json").read_bytes())
    tokenization["tgt"]["lang"] = lang
    (place / "tokenization.json").write_text(json.dumps(tokenization), encoding="utf-8")
    write_manifest(place, {"kind": "average"})
    export([str(place), str(tmp_path / "x.argosmodel")], "argos")
    with zipfile.ZipFile(tmp_path / "x.argosmodel") as archive:
        assert f"translate-en_{code}-nmtkit/metadata.json" in archive.namelist()


@pytest.mark.parametrize("kind", sorted(VOCABULARIES.keys() - {"text"}))
def test_argos_refuses_other_text(kind: str, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "bundle", *VOCABULARIES[kind])
    with pytest.raises(UserError, match="plain text"):
        export([str(bundle), str(tmp_path / "x.argosmodel")], "argos")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
