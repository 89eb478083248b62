"""Requests to translate, as clients of LibreTranslate send them, and the batches they form.

https://github.com/LibreTranslate/LibreTranslate describes `POST /translate` and `GET /languages`.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from http import HTTPStatus
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl

from nmtkit.decoding.engine import map_groups
from nmtkit.decoding.text_translator import TextTranslator, Translation
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError, is_out_of_memory
from nmtkit.utils.language import parse_tag

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
AUTO = "auto"  # as source: the client does not know the language


class RequestError(Exception):
    """A request that cannot be answered.

    Attributes:
        status: The status of the response.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        """Refuse a request with a status and a message for its sender."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class TranslationRequest:
    """A request to translate one text or several."""

    texts: list[str]
    is_list: bool  # the response is a list, too
    is_auto: bool  # the client asked for the source language
    n_alternatives: int


class Api:
    """A model behind the API. Requests that wait while it is busy are translated together."""

    def __init__(self, translator: TextTranslator, max_characters: int) -> None:
        """Start the thread that translates.

        Args:
            max_characters: Maximum number of characters of a request.
        """
        self._translator = translator
        self.max_characters = max_characters
        self.src_lang = translator.text.src.lang
        self.tgt_lang = translator.text.tgt.lang
        self._is_closed = False
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._translate_jobs, name="translate", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until the requests so far are translated, then end the thread."""
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()

    @property
    def max_body_bytes(self) -> int:
        """The maximum size of a request."""
        # JSON may escape a character as two units of UTF-16: "\ud83d\ude00".
        return 12 * self.max_characters + 65_536

    def languages(self) -> list[dict[str, Any]]:
        """Return the response to `GET /languages`."""
        return [
            {"code": lang, "name": language_name(lang), "targets": targets}
            for lang, targets in ((self.src_lang, [self.tgt_lang]), (self.tgt_lang, []))
        ]

    def translate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response to `POST /translate`.

        Args:
            values: The parameters of the request, as `parse_parameters` returns them.

        Raises:
            RequestError: A parameter is missing or invalid, or the translation failed.
        """
        request = self._check(values)
        if self._is_closed:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping")
        # Every line of a text is translated as a line, and stays a line.
        lines_by_text = [text.replace("\r\n", "\n").split("\n") for text in request.texts]
        n = min(1 + request.n_alternatives, self._translator.decoding.beam_size)
        job = _Job(list(chain.from_iterable(lines_by_text)), n, Future())
        self._queue.put(job)
        translations = iter(job.result.result())

        translated = []
        alternatives = []
        for lines in lines_by_text:
            best = [next(translations) for _ in lines]
            # A line has fewer translations than the others if the search found fewer.
            texts = ["\n".join(line[min(i, len(line) - 1)].text for line in best) for i in range(n)]
            translated.append(texts[0])
            alternatives.append([text for text in dict.fromkeys(texts) if text != texts[0]])
        # Nothing detects languages; the confidence is that of LibreTranslate for no result.
        detected = [{"language": self.src_lang, "confidence": 0.0} for _ in translated]
        response: dict[str, Any] = {"translatedText": translated}
        if request.n_alternatives:
            response["alternatives"] = alternatives
        if request.is_auto:
            response["detectedLanguage"] = detected
        if not request.is_list:
            return {name: value[0] for name, value in response.items()}
        return response

    def _check(self, values: Mapping[str, Any]) -> TranslationRequest:
        """Check the parameters of a request, and return them.

        Raises:
            RequestError: A parameter is missing or invalid.
        """
        for name in ("q", "source", "target"):
            if not values.get(name):
                raise _bad_request(f"the parameter {name} is missing")
        texts = values["q"]
        is_list = isinstance(texts, list)
        if not is_list:
            texts = [texts]
        for text in texts:
            if not isinstance(text, str):
                raise _bad_request("the parameter q is neither a string nor a list of strings")
            if not _is_unicode(text):
                raise _bad_request("the parameter q has a lone surrogate and is not valid Unicode")
        n_characters = sum(map(len, texts))
        if n_characters > self.max_characters:
            raise _bad_request(
                f"the text has {n_characters:,} characters, and the maximum is "
                f"{self.max_characters:,}; send it in parts"
            )

        source, target = values["source"], values["target"]
        is_auto = source == AUTO
        if not is_auto and not _is_same_language(source, self.src_lang):
            raise _bad_request(f"the source is {source!r}, but the model reads {self.src_lang!r}")
        if not _is_same_language(target, self.tgt_lang):
            raise _bad_request(f"the target is {target!r}, but the model writes {self.tgt_lang!r}")
        format_ = values.get("format") or "text"
        if format_ != "text":
            raise _bad_request(f"the format is {format_!r}, but only 'text' is supported")
        try:
            n_alternatives = max(0, int(values.get("alternatives") or 0))
        except (TypeError, ValueError, OverflowError):
            raise _bad_request("the parameter alternatives is not a number") from None
        return TranslationRequest(texts, is_list, is_auto, n_alternatives)

    def _translate_jobs(self) -> None:
        """Translate the jobs of the queue until it ends: all that are waiting, in one batch."""
        is_open = True
        while is_open:
            jobs = [self._queue.get()]
            while not self._queue.empty():
                jobs.append(self._queue.get())
            is_open = None not in jobs
            self._translate_batch([job for job in jobs if job is not None])

    def _translate_batch(self, jobs: "Sequence[_Job]") -> None:
        """Translate jobs together, and set their results."""
        n = max((job.n for job in jobs), default=1)
        try:
            results = map_groups(
                lambda lines: self._translator.n_best(lines, n), [job.lines for job in jobs]
            )
        except Exception as error:  # noqa: BLE001 - the server answers the next requests
            progress.warn(f"serve: the translation failed ({error})")
            # Only messages for users go over the network.
            message = "the translation failed"
            if isinstance(error, UserError) or is_out_of_memory(error):
                message += f": {error}"
            for job in jobs:
                failure = RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, message)
                job.result.set_exception(failure)
            return
        for job, result in zip(jobs, results, strict=True):
            job.result.set_result(result)


@dataclass(frozen=True)
class _Job:
    """Lines that wait for their translations."""

    lines: list[str]
    n: int  # translations per line
    result: "Future[list[list[Translation]]]"


def parse_parameters(content_type: str, body: bytes, query: str) -> dict[str, Any]:
    """Return the parameters of a request: those of its address, and of its body.

    Args:
        content_type: The header of this name: JSON, or one of the two kinds of forms.
        query: The part of the address after "?".

    Raises:
        RequestError: The body is not what the header says.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        values: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True, errors="strict"))
        if kind == JSON:
            document = json.loads(body)
            if not isinstance(document, dict):
                raise ValueError("not an object")
            values |= document
        elif kind == MULTIPART:
            message = BytesParser(policy=HTTP).parsebytes(
                b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n" + body
            )
            for part in message.iter_parts():
                name = part.get_param("name", header="content-disposition")
                payload = part.get_payload(decode=True)
                if not isinstance(payload, bytes):
                    raise ValueError("a part has parts")
                values[str(name)] = payload.decode("utf-8")
        elif kind == FORM:
            form = body.decode("utf-8")
            values |= dict(parse_qsl(form, keep_blank_values=True, errors="strict"))
        elif body:
            raise ValueError("send JSON or a form, with its content type")
    except (ValueError, RecursionError) as error:
        raise _bad_request(
            f"the request is not valid ({kind or 'no content type'}: {error})"
        ) from None
    return values


def language_name(lang: str) -> str:
    """Return the English name of a language, or the tag itself if it is none."""
    language = parse_tag(lang)
    return lang if language is None else language.english_name


def _is_same_language(tag: object, lang: str) -> bool:
    """Return whether a tag names the language of the model, perhaps in a more general form."""
    if tag == lang:
        return True
    language = parse_tag(tag) if isinstance(tag, str) else None
    own = parse_tag(lang)
    return language is not None and own is not None and own.matches(language)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bad_request(message: str) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, message)
