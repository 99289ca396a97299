"""gpflow_deep_runs.data.files.encodings: the page in which the letters are those of a language."""

import pytest

from gpflow_deep_runs.data.files.encodings import encoding_of

_WORDS = {
    "cp1252": (
        *("Straße;5 €", "Isère;Rhône;Côte-d'Or", "São Paulo;opções", "Città;Forlì", "Årø;Ålesund", "Ísafjörður;Þór"),
        *("Coruña;m³;½", "José;Müller;François;Søren", "“quoted” – text…", "Tartu;Võru;Pärnu"),
    ),
    "cp1250": ("Plzeň;Ústí;Řevnice", "České Budějovice", "Wałbrzych;Łódź", "Győr;Hódmezővásárhely", "Timişoara;Galaţi"),
    "cp1254": ("İstanbul;Muğla;Şırnak", "Ağrı;Iğdır"),
    "cp1257": ("Kaišiadorys;Panevėžys",),
    "iso-8859-2": ("Łódź;Śląsk",),
    "cp850": ("Köln;Zürich",),
    "mac_roman": ("Orléans;Nîmes",),
    "cp1251": ("Москва;Казань;Пермь население",),
    "koi8-r": ("Москва;Казань;Пермь население",),
    "cp1253": ("Αθήνα;Πάτρα;Θεσσαλονίκη πληθυσμός",),
    "shift_jis": ("東京;大阪;京都 人口",),
    "gb18030": ("北京;上海;广州 人口",),
}


@pytest.mark.parametrize(("page", "words"), [(page, words) for page, all_ in _WORDS.items() for words in all_])
def test_a_page_is_that_of_a_language(page: str, words: str) -> None:
    text = "name;x\n" + "".join(f"{word};{row}\n" for row in range(9) for word in words.split(";"))
    content = text.encode(page)
    assert content.decode(encoding_of(content, "F")) == text


def test_a_text_of_two_languages_is_a_question() -> None:
    content = "Rīga;1\nJūrmala;2\n".encode("cp1257")
    with pytest.raises(ValueError, match=r"'Rîga;1'.*'Rīga;1'.*--encoding=windows-1254 or --encoding=windows-1257"):
        encoding_of(content, "F")
    assert encoding_of("กรุงเทพ;เชียงใหม่".encode("cp874"), "F") == ""
