"""Which code page a text is in that is not UTF-8.

    encoding_of("Straße;5 €".encode("cp1252"), "shop.csv")          # "windows-1252"
    encoding_of("Plzeň;5".encode("cp1250"), "towns.csv")            # "windows-1250"

All pages of Latin letters can read nearly every text. It is read by the one in which
its letters are those of a language; windows-1252 goes first, which most programs write. Other scripts are told by
charset-normalizer.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

__all__ = ["encoding_of"]


class _Language(NamedTuple):
    """Letters of a language beyond a to z, and where some of them never are, as a regular expression."""

    letters: str
    never: str = r"\b\B"


_LATIN = {
    "windows-1252": (
        _Language("äöüß"),
        _Language("àâæçéèêëîïôœùûüÿ", r"ù\w|\A(?!.*[àçéèê])"),  # French, which has one of these
        _Language("áéíñóúü", r"ñ(?![aeiouáéíóú])"),  # Spanish
        _Language("áâãàçéêíóôõúü", r"õ(?!e)"),  # Portuguese
        _Language("àèéìíîòóùú", r"[ìòù]\w"),  # Italian
        _Language("àçèéíïòóúü"),  # Catalan
        _Language("áäèéëíïóöúü"),  # Dutch
        _Language("åäöéáàüè"),  # Swedish, Finnish
        _Language("æøåéóòôäöü"),  # Danish, Norwegian
        _Language("áðéíóúýþæö", r"þ\b|\bð|\A(?!.*[áéíóúæ])"),  # Icelandic, likewise
        _Language("äõöüšž"),  # Estonian
    ),
    "windows-1250": (
        _Language("áčďéěíňóřšťúůýž"),  # Czech
        _Language("áäčďéíĺľňóôŕšťúýž"),  # Slovak
        _Language("ąćęłńóśźż"),  # Polish
        _Language("áéíóöőúüű"),  # Hungarian
        _Language("ăâîşţ"),  # Romanian
        _Language("čćđšž"),  # Croatian, Slovene
    ),
    "windows-1254": (_Language("âçğıîöşüû\u0307"),),  # Turkish; the last is the point of a small I with one
    "windows-1257": (_Language("ąčęėįšųūž"), _Language("āčēģīķļņšūž")),  # Lithuanian, Latvian
}
_LATIN["iso-8859-2"] = _LATIN["windows-1250"]
_LATIN["cp850"] = _LATIN["windows-1252"]
_LATIN["mac_roman"] = _LATIN["windows-1252"]
_SIGNS = frozenset("€‚„…†‡‰‘’“”•–—™\xa0§¨©«¬®°±´µ¶·»")
"""What is no letter, and at the same place in all these pages, or nearly so."""

_WESTERN_SIGNS = _SIGNS | frozenset("¡¢£¥¦ª¯²³¸¹º¼½¾¿×÷")
_WITHIN = re.compile(
    "[^\\W\\d_][‘“„”…†‡‰•\xa1-\xa9\xac-\xb4\xb6\xb8\xb9\xbb-\xbf][^\\W\\d_]|[£©ªº][^\\W\\d_]|[^\\W\\d_]{2}[ªº]|[\xc0-\xff]{3}"
)
"""Signs within a word, or words of letters that are rare where these pages are used."""

_OTHERS = (
    ["shift_jis", "euc_jp", "gb18030", "big5", "cp949"],
    ["cp1251", "koi8_r", "cp1253", "cp1255", "cp1256"],
)
"""What charset-normalizer chooses from: pages of several bytes a character, which it is sure of, then the others."""


def encoding_of(content: bytes, where: str) -> str:
    """The encoding of a text that is not UTF-8; "" if it is not known.

    :raises ValueError: naming `where`, two encodings and the flag: it is a text of a language in either.
    """
    # Pages of Latin letters with which the letters are those of a language; windows-1252 goes first.
    texts = {page: text for page in _LATIN if (text := _decoded(content, page))}
    fitting = [page for page, text in texts.items() if any(_is_of(text, page, language) for language in _LATIN[page])]
    if "windows-1252" in fitting:
        return "windows-1252"
    # Several pages may do only if they read the same text.
    if others := [page for page in fitting if texts[page] != texts[fitting[0]]]:
        one = fitting[0]
        other = others[0]
        word = next(pair for pair in zip(texts[one].split(), texts[other].split(), strict=False) if len(set(pair)) > 1)
        raise ValueError(
            f"{where} may be text in {one} (as {word[0][:40]!r}) or in {other} (as {word[1][:40]!r}); give "
            f"--encoding={one} or --encoding={other}."
        )
    if fitting:
        return fitting[0]
    # Several languages in one text: all letters of western Europe.
    letters = "".join(language.letters for language in _LATIN["windows-1252"])
    for page in ("windows-1252", "mac_roman", "cp850"):
        if page in texts and _is_of(texts[page], page, _Language(letters)):
            return page
    # Other scripts are told by a library; a text that stays odd has no known encoding.
    from charset_normalizer import from_bytes  # here, as few texts need it

    for pages, most_odd in zip(_OTHERS, (0.2, 0.3), strict=True):
        best = from_bytes(content, cp_isolation=pages, threshold=most_odd).best()
        if best is not None:
            return str(best.encoding)
    return ""


def _decoded(content: bytes, page: str) -> str:
    try:
        return content.decode(page)
    except UnicodeDecodeError:
        return ""


def _is_of(text: str, page: str, language: _Language) -> bool:
    """Whether the letters of a text are those of a language, and its other characters are usual."""
    lower = text.lower()
    beyond = {character for character in lower if character > "\x7f"}
    usual_characters = set(language.letters) | (_WESTERN_SIGNS if page == "windows-1252" else _SIGNS)
    if any(before.islower() and after > "\x7f" and after.isupper() for before, after in itertools.pairwise(text)):
        return False  # OrlÄans
    return beyond <= usual_characters and not re.search(f"(?s){language.never}", lower) and not _WITHIN.search(lower)
