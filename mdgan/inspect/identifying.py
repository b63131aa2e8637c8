"""Finds columns that identify people, so that a schema draft omits them or warns of them.

A column identifies people by its name, in several languages, or by its values, such as numbers
with a check digit. Birth date, postcode and sex identify people together.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from unicodedata import combining, normalize

from mdgan.inspect.table_facts import FEW, ColumnFacts, LeftOut
from mdgan.samples.table.schema import AnyColumn, MomentColumn, WholeColumn
from mdgan.samples.table.texts import files_of, texts_of_file

_MOST = 0.95  # a column is of a kind if a larger share of its texts passes its check
_MOST_TEXTS_TRIED = 1000
_FEW_KEYS = 3  # so few texts may have right check digits by chance


def words_of(name: str) -> list[str]:
    """Splits a name into words in lower case, without accents: `förnamnKod` is fornamn, kod."""
    plain = "".join(sign for sign in normalize("NFKD", name) if not combining(sign))
    plain = normalize("NFC", plain)  # NFKD has split Korean letters
    plain = re.sub(r"(?<=[a-zß])(?=[A-Z])", "_", plain.replace("ł", "l").replace("ø", "o"))
    return re.findall(r"[^\W\d_]+", plain.casefold())


def _finder(words: str) -> Callable[[str], re.Match[str] | None]:
    """Makes a search for one of some words; `*` is any rest of a word, and `a_b` is two words."""
    each = (re.escape(word).replace(r"\*", "[^_]*") for word in words.split())
    return re.compile(rf"(?<![^_])(?:{'|'.join(each)})(?![^_])").search


_IS_NAME = _finder(
    "firstname lastname forename surname familyname givenname middlename maidenname fullname "
    "first_name last_name family_name given_name middle_name maiden_name full_name birth_name "
    "patient*name patient*_name name_patient given_names geburts_name nom_de_naissance *vorname "
    "*nachname *familienname geburtsname rufname prenom prenoms patronyme nom_famille "
    "nom_de_famille nombre_completo apellido apellidos sobrenome cognome imie nazwisko "
    "voornaam achternaam fornamn efternamn fornavn etternavn efternavn etunimi sukunimi jmeno "
    "prijmeni keresztnev vezeteknev onoma eponymo имя фамилия отчество 姓名 氏名 名前 이름"
)
_IS_CONTACT = _finder(
    "address adresse anschrift direccion indirizzo endereco adres adress street strasse *strasse "
    "rue calle ulica email* mail fax phone telephone telefon* telefono puhelin tel mobile handy "
    "handynummer mobilnummer mobil_nr handy_nr natel guid iban passport ssn uuid"
)
_IS_NUMBER = _finder(
    "nhs nino *passnummer reisepass pasaporte passeport ahv* avs svnr sozialversicherung* "
    "versicherten* *versichertennummer kvnr steuer_id steueridentifikation* insee nir "
    "securite_sociale dni nif nie codice_fiscale bsn burgerservicenummer pesel personnummer "
    "fodselsnummer cpr hetu cpf aadhaar medicare insurance_number insurance_no policy_number "
    "account_number konto* secu kundennummer bankkonto licence license ausweis*"
)
_MAYBE = _finder(
    "comment comments id ids key mrn name names nom nombre nome naam namn navn nimi note notes "
    "remark remarks text bemerkung* kommentar* notiz* commentaire* observaciones"
)
_KEYS = frozenset({"id", "ids", "key", "mrn"})
_NAMES = frozenset(["name", "names", "nom", "nombre", "nome", "naam", "namn", "navn", "nimi"])
_IS_BIRTH = _finder(
    "*birth* born dob geb geburt* *naissance nacimiento nascita nascimento fodsels* fodelse* "
    "geboorte* urodzenia narozeni syntyma*"
)
_IS_PLACE = _finder(
    "plz postleitzahl zip* postcode post_code postal* codigo_postal cep kod_pocztowy postnummer "
    "postnr psc postinumero pincode"
)
_IS_SEX = _finder("sex gender geschlecht sexe sexo sesso genero kon kjonn pohlavi plec sukupuoli")


# Checks of the texts in a column.


def _sums(text: str, weights: Sequence[int], modulus: int) -> bool:
    return sum(w * int(c) for w, c in zip(weights, text, strict=True)) % modulus == 0


def _luhn(text: str, check: str = "0") -> bool:
    doubled = (int(c) * (1 + place % 2) for place, c in enumerate(reversed(text)))
    return sum(n - 9 * (n > 9) for n in doubled) % 10 == int(check)


def _steuer_id(text: str) -> bool:
    rest = 10
    for c in text[:-1]:
        rest = ((int(c) + rest) % 10 or 10) * 2 % 11
    return (11 - rest) % 10 == int(text[-1])


_CHECKS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    (
        "numbers of bank accounts (IBAN)",
        r"[A-Z]{2}\d\d[A-Z0-9]{11,30}",
        lambda t: int("".join(str(int(c, 36)) for c in t[4:] + t[:4])) % 97 == 1,
    ),
    ("numbers of the insured (AHV)", r"756\d{10}", lambda t: _sums(t, (1, 3) * 6 + (1,), 10)),
    ("numbers of cards", r"\d{15,16}", _luhn),
    ("NHS numbers", r"\d{10}", lambda t: _sums(t, range(10, 0, -1), 11)),
    ("numbers of tax (Steuer-ID)", r"[1-9]\d{10}", _steuer_id),
    (
        "numbers of the insured (KVNR)",
        r"[A-Z]\d{9}",
        lambda t: _luhn(f"{ord(t[0]) - 64:02}{t[1:9]}0", t[9]),
    ),
    (
        "numbers of the insured (NIR)",
        r"[12]\d{14}",
        lambda t: (int(t[:13]) + int(t[13:])) % 97 == 0,
    ),
    (
        "numbers of persons (DNI)",
        r"\d{8}[A-Z]",
        lambda t: "TRWAGMYFPDXBNJZSQVHLCKE"[int(t[:8]) % 23] == t[8],
    ),
    ("numbers of persons (personnummer)", r"(?:19|20)?\d\d[01]\d\d{6}", lambda t: _luhn(t[-10:])),
    ("numbers of persons (PESEL)", r"\d{11}", lambda t: _sums(t, (1, 3, 7, 9) * 2 + (1, 3, 1), 10)),
    ("numbers of persons (BSN)", r"\d{9}", lambda t: _sums(t, (*range(9, 1, -1), -1), 11)),
    ("numbers of persons (codice fiscale)", r"[A-Z]{6}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z]", bool),
)
_NUM_SURE = 2  # so many looks, the first, need no more than a few texts
_LOOKS = (
    ("e-mail addresses", r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}"),
    ("numbers of persons (SSN)", r"\d{3}-\d\d-\d{4}"),
    (
        "phone numbers",
        r"(?=(?:\D*\d){8,15}\D*$)(?:\+|0(?!\.)|\()[\d ()/.-]+|\d{3}[-. ]\d{3}[-. ]\d{4}",
    ),
    ("addresses of machines", r"\d{1,3}(?:\.\d{1,3}){3}"),
    (
        "addresses",
        r"(?i)(?=.*\d).*(?:str\.|stra(?:ss|ß)e|gasse|weg|platz|allee|\b(?:street|st|road|rd|avenue|ave"
        r"|lane|drive|rue|via|calle|ul|ulica)\b|gata|gatan|straat|laan|vej).*",
    ),
)


def refuse_identifying(facts: ColumnFacts) -> None:
    """Raises LeftOut for a column that names or numbers people, by its name or its texts."""
    words = "_".join(words_of(facts.name))
    is_answer = len(facts.texts) <= FEW and all(
        len(text) < 6 and "@" not in text for text in facts.texts
    )
    if (word := _IS_CONTACT(words)) and not (is_answer and not facts.has_more_texts):
        raise LeftOut(f"is called {word[0]}, which names a person")
    is_number = facts.num_numbers == facts.num_values
    if (word := _IS_NAME(words)) and not is_number:
        raise LeftOut(f"is called {word[0]}, which names a person")
    many = facts.has_more_texts or len(facts.texts) > max(FEW, facts.num_values / 20)
    if words in _NAMES and not is_number and len(facts.texts) > 2:
        raise LeftOut(f"is called {words}, which names a person")
    if many and (word := _MAYBE(words)) and not (is_number and word[0] not in _KEYS):
        raise LeftOut(f"is called {word[0]} and has many different values")
    if not (many or len(facts.texts) > _FEW_KEYS):
        return
    texts = [text for text, _ in zip(facts.texts, range(_MOST_TEXTS_TRIED), strict=False)]
    bare = [re.sub(r"[ .\-/]", "", text.removesuffix(".0")).upper() for text in texts]
    are_long = sum(len(re.findall(r"\d", text)) > 6 for text in bare) > _MOST * len(texts)
    if many and are_long and facts.decimals <= 0 and (word := _IS_NUMBER(words)):
        raise LeftOut(f"is called {word[0]} and has many different numbers, which name persons")
    for what, look, check in _CHECKS:
        passed = sum(bool(re.fullmatch(look, text, re.ASCII)) and check(text) for text in bare)
        if passed > _MOST * len(texts):
            raise LeftOut(f"has {what}, by their check digits")
    for what, look in () if facts.num_moments else _LOOKS if many else _LOOKS[:_NUM_SURE]:
        if sum(map(bool, (re.fullmatch(look, text) for text in texts))) > _MOST * len(texts):
            raise LeftOut(f"has {what}")


def warn_of_combinations(
    path: Path, columns: Iterable[AnyColumn], person: str, *, no_header: bool
) -> Iterator[str]:
    """Warns of columns that identify people together, and says how many people they single out."""
    names_by_topic: dict[str, list[str]] = {"birth": [], "place": [], "sex": []}
    for column in columns:
        words = "_".join(words_of(column.name))
        is_year = isinstance(column, WholeColumn) and 1850 <= column.low <= column.high <= 2150
        if _IS_BIRTH(words) and (is_year or isinstance(column, MomentColumn)):
            names_by_topic["birth"].append(column.name)
        elif _IS_PLACE(words):
            names_by_topic["place"].append(column.name)
        elif _IS_SEX(words):
            names_by_topic["sex"].append(column.name)
    names = [*names_by_topic["birth"], *names_by_topic["place"]]
    if not names:
        return
    names += names_by_topic["sex"]
    num_rows, num_alone = _alone(path, names, person, no_header=no_header)
    if num_alone:
        people = "people" if person else "rows"
        yield (
            f"{', '.join(names)}: identify people{' together' if len(names) > 1 else ''}: "
            f"{num_alone:,} of {num_rows:,} {people} are alone with what they say there; write "
            "years instead of days and fewer digits of a postcode, or leave out one"
        )


def _alone(path: Path, names: Sequence[str], person: str, *, no_header: bool) -> tuple[int, int]:
    """Counts persons, or rows without a `person`, and those whose values in `names` are unique."""
    seen_keys, rows_by_values = set[int](), Counter[int]()
    for file in files_of(path):
        for texts in texts_of_file(file, no_header=no_header):
            read = [texts.column(name) for name in names]
            owners = texts.column(person) if person else texts.lines
            for owner, *values in zip(owners, *read, strict=True):
                key = hash((owner, *values)) if person else 0
                if key not in seen_keys:
                    rows_by_values[hash(tuple(values))] += 1
                if person:
                    seen_keys.add(key)
    return rows_by_values.total(), sum(count == 1 for count in rows_by_values.values())
