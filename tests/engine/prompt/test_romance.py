"""Numbers in the words of two languages, as these write them."""

import pytest

from sonorant.engine.prompt.words_stream import WordsStream
from tests.engine.prompt.pieces import read

SAID = {
    "spanish": {
        "1.234,5 y 250 casas": "mil doscientos treinta y cuatro coma cinco y doscientas cincuenta casas",
        "21 años, 1 libro, 31 horas, 21.000": "veintiún años, un libro, treinta y una horas, veintiún mil",
        "1,234.50, 5.99, 0,05 y 3,14159": (
            "mil doscientos treinta y cuatro punto cincuenta, cinco punto noventa y nueve, cero coma cero cinco "
            "y tres coma uno cuatro uno cinco nueve"
        ),
        "5,50 € o $5.99, 1 €, 0,99 €": (
            "cinco euros con cincuenta céntimos o cinco dólares con noventa y nueve centavos, un euro, "
            "noventa y nueve céntimos"
        ),
        "$5 millones, 2.000.000 €, 1.000.000 personas y 3.000.000 de años": (
            "cinco millones de dólares, dos millones de euros, un millón de personas y tres millones de años"
        ),
        "0,05 €": "cinco céntimos",
        "5,5 %, 100%, -5 grados C": "cinco coma cinco por ciento, cien por ciento, menos cinco grados Celsius",
        "a las 10:30, a las 4.40, la 1:05, 21:00, 20 h": (
            "a las diez y treinta, a las cuatro y cuarenta, la una y cinco, veintiuna, veinte horas"
        ),
        "El 31/8/1687, 2024-05-06, 31/08": (
            "El treinta y uno de agosto de mil seiscientos ochenta y siete, seis de mayo de dos mil veinticuatro, "
            "treinta y uno de agosto"
        ),
        "3.º piso, 1er día, 3.º casa, n.º 7": "tercer piso, primer día, tercera casa, número siete",
        "612 345 678, 12 000 000, 007": (
            "seis uno dos, tres cuatro cinco, seis siete ocho, doce millones, cero cero siete"
        ),
        "3-5 días, 1990-2000, 3:1, 24/7": (
            "tres a cinco días, mil novecientos noventa a dos mil, tres a uno, veinticuatro siete"
        ),
        "1/2, 1 1/2 y 3/4": "medio, uno y medio y tres cuartos",
        "El Sr. López y la Dra. Ruiz, de EE. UU., p. ej. a las 5 p. m., etc. Luego": (
            "El señor López y la doctora Ruiz, de Estados Unidos, por ejemplo a las cinco pe eme, etcétera. Luego"
        ),
        "Vive en EE.UU. Nada. 20 págs. más": "Vive en Estados Unidos. Nada. veinte páginas más",
        "el 44 a. C. y 30 d.C.": "el cuarenta y cuatro antes de Cristo y treinta después de Cristo.",
        "Felipe II, Luis XIV, siglo XX, la II Guerra": "Felipe segundo, Luis catorce, siglo veinte, la segunda Guerra",
        "la TV, el DNI, el IVA, 3.º B": "la te uve, el de ene i, el IVA, tercer be",
        "ana.ruiz@ejemplo.es, https://www.ejemplo.es": "ana punto ruiz arroba ejemplo punto es, ejemplo punto es",
        "5 km/h, 1 kg, 2 ha, COVID-19, v1.2.3": (
            "cinco kilómetros por hora, un kilogramo, dos hectáreas, COVID-diecinueve, v uno punto dos punto tres"
        ),
        "3457 8912345, 28013 y 1987": (
            "tres mil cuatrocientos cincuenta y siete ocho nueve uno dos tres cuatro cinco, dos ocho cero uno tres "
            "y mil novecientos ochenta y siete"
        ),
    },
    "italian": {
        "1.234,56 €, € 1, 21 euro": ("milleduecentotrentaquattro euro e cinquantasei centesimi, un euro, ventuno euro"),
        "alle 10:30, alle 4.40, 1:15": "alle dieci e trenta, alle quattro e quaranta, una e quindici",
        "1 studente, 1 persona, 1 libro": "uno studente, una persona, un libro",
        "1 maggio, 1º maggio, 3º volta, 31/8/1687": (
            "primo maggio, primo maggio, terza volta, trentuno agosto milleseicentottantasette"
        ),
        "4,5 kg, 100%": "quattro virgola cinque chilogrammi, cento per cento",
        "il sig. Rossi, la dott.ssa Verdi, la TV, ecc.": ("il signor Rossi, la dottoressa Verdi, la ti vu, eccetera."),
        "il XX secolo, Luigi XIV, la II guerra": "il ventesimo secolo, Luigi quattordicesimo, la seconda guerra",
        "luca@esempio.it": "luca chiocciola esempio punto it",
    },
}


@pytest.mark.parametrize("language", SAID)
def test_numbers_are_said_in_the_language(language: str) -> None:
    for written, said in SAID[language].items():
        assert read(written, (), language)[0] == said
        assert read(written, range(1, len(written)), language)[0] == said


@pytest.mark.parametrize("language", SAID)
def test_words_are_given_at_once(language: str) -> None:
    for word in ("no", "St", "Río", " ma"):
        assert WordsStream(language).push(word, range(len(word)))[0] == word
