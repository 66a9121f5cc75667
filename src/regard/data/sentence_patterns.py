"""Sentences with slots in two languages, and names for them, for augmentation.

`{x}` and `{y}` are placeholders: a number, a price, a time, an address. `{s}` is a number of one or two digits,
`{date}` a day and a month, `{name}` a person and `{place}` a town that both languages call the same.
"""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PLACES = _names("""
    Boston London Paris Berlin Hamburg Frankfurt Stuttgart Dresden Leipzig Bremen Bonn Kiel Amsterdam Madrid Barcelona
    Chicago Dallas Denver Seattle Houston Toronto Montreal Sydney Melbourne Osaka Kyoto Zagreb Oslo Stockholm Helsinki
    Dublin Oxford Cambridge Manchester Liverpool Edinburgh Glasgow Basel Graz Salzburg Linz Bern Lyon Marseille Bordeaux
    Istanbul Ankara Mainz Erfurt Potsdam Rostock Augsburg Heidelberg Freiburg
""")
"""Towns that English and German call the same."""

PEOPLE = _names("""
    Tom Mary Maria John Bill Ken Bob Jim Mike Jack Jane Lucy Susan Alice Emily Anna Anne Peter Paul Thomas Michael
    Andreas Stefan Klaus Jürgen Jens Lars Lena Lea Mia Emma Sophie Laura Julia Sarah Hannah Leonie Marie Clara Ida Felix
    Max Moritz Leon Lukas Jonas Noah Elias Finn Ben Oskar Emil Anton Jakob David Daniel Simon Tim Jan Niklas Ahmed Ali
    Fatima Ayşe Mehmet Hassan Yusuf Amina Olga Ivan Natascha Igor Sven Björn Astrid Ingrid Pierre Claire Luca Giulia
    Marco Carlos Miguel Lucia Wei Yuki Hiroshi Priya Raj Smith Miller Johnson Brown Wilson Taylor Müller Schmidt
    Schneider Fischer Weber Meyer Wagner Becker Schulz Hoffmann Koch Bauer Richter Klein Wolf
""")
"""First and last names of people."""

_ENGLISH_GERMAN = """
It costs {x} euros.|Es kostet {x} Euro.
It costs ${x}.|Es kostet {x} $.
The ticket costs €{x}.|Die Karte kostet {x} €.
That's {x} dollars.|Das sind {x} Dollar.
I paid {x} euros for it.|Ich habe {x} Euro dafür bezahlt.
I paid ${x} for this book.|Ich habe für dieses Buch {x} Dollar bezahlt.
I bought it for €{x}.|Ich habe es für {x} € gekauft.
The book costs only {x} euros.|Das Buch kostet nur {x} Euro.
The rent is {x} euros a month.|Die Miete beträgt {x} Euro im Monat.
He earns {x} euros a month.|Er verdient {x} Euro im Monat.
She owes me {x} dollars.|Sie schuldet mir {x} Dollar.
Can you lend me {x} euros?|Kannst du mir {x} Euro leihen?
The price rose from {x} to {y} euros.|Der Preis stieg von {x} auf {y} Euro.
The price has gone up by {x} percent.|Der Preis ist um {x} Prozent gestiegen.
Prices fell by {x}%.|Die Preise fielen um {x} %.
It weighs {x} kilograms.|Es wiegt {x} Kilogramm.
The package weighs {x} kg.|Das Paket wiegt {x} kg.
The bridge is {x} meters long.|Die Brücke ist {x} Meter lang.
The tower is {x} m high.|Der Turm ist {x} m hoch.
It's {x} kilometers to {place}.|Es sind {x} Kilometer bis {place}.
We drove {x} km today.|Wir sind heute {x} km gefahren.
The temperature is {x} degrees.|Die Temperatur beträgt {x} Grad.
It was {s} degrees this morning.|Heute Morgen waren es {s} Grad.
The file is {x} MB in size.|Die Datei ist {x} MB groß.
There are {x} books in the library.|In der Bibliothek gibt es {x} Bücher.
He has {x} books.|Er hat {x} Bücher.
I have {x} friends.|Ich habe {x} Freunde.
More than {x} people came.|Es kamen mehr als {x} Leute.
About {x} people live in {place}.|In {place} leben etwa {x} Menschen.
The town has {x} inhabitants.|Die Stadt hat {x} Einwohner.
The school has {x} students and {s} teachers.|Die Schule hat {x} Schüler und {s} Lehrer.
We need {s} chairs and {x} plates.|Wir brauchen {s} Stühle und {x} Teller.
My room number is {x}.|Meine Zimmernummer ist {x}.
The flight number is {x}.|Die Flugnummer ist {x}.
My phone number is {x}.|Meine Telefonnummer lautet {x}.
Please call me at {x}.|Bitte ruf mich unter {x} an.
You can reach me at {x}.|Sie können mich unter {x} erreichen.
The answer is {x}.|Die Antwort ist {x}.
I'm {s} years old.|Ich bin {s} Jahre alt.
My brother is {s} years old.|Mein Bruder ist {s} Jahre alt.
{name} is {s} and lives in {place}.|{name} ist {s} und wohnt in {place}.
The bus leaves in {s} minutes.|Der Bus fährt in {s} Minuten ab.
It took {s} hours and {x} euros.|Es hat {s} Stunden und {x} Euro gekostet.
The train leaves at {x}.|Der Zug fährt um {x} Uhr ab.
The train arrives at {x}.|Der Zug kommt um {x} Uhr an.
Let's meet at {x}.|Treffen wir uns um {x} Uhr.
We'll meet at {x} in front of the station.|Wir treffen uns um {x} Uhr vor dem Bahnhof.
The meeting starts at {x}.|Die Sitzung beginnt um {x} Uhr.
The shop is open from {x} to {y}.|Das Geschäft ist von {x} bis {y} Uhr geöffnet.
I got up at {x} this morning.|Ich bin heute Morgen um {x} Uhr aufgestanden.
It's {x}.|Es ist {x} Uhr.
I was born on {date}, {x}.|Ich wurde am {date} {x} geboren.
He died on {date}, {x}.|Er starb am {date} {x}.
She was born in {place} on {date}, {x}.|Sie wurde am {date} {x} in {place} geboren.
The meeting is on {date}, {x}.|Das Treffen ist am {date} {x}.
The concert is on {date}.|Das Konzert ist am {date}.
My birthday is on {date}.|Ich habe am {date} Geburtstag.
We got married on {date}, {x}.|Wir haben am {date} {x} geheiratet.
The meeting is on {x}.|Die Sitzung ist am {x}.
The offer is valid until {x}.|Das Angebot gilt bis {x}.
Please answer by {date}.|Bitte antworten Sie bis zum {date}.
The shop has been closed since {date}.|Das Geschäft ist seit dem {date} geschlossen.
She has lived in {place} since {date}, {x}.|Sie wohnt seit dem {date} {x} in {place}.
The letter of {date}, {x} has arrived.|Der Brief vom {date} {x} ist angekommen.
I will be away from {date}.|Ich bin ab dem {date} nicht da.
On {date}, {x}, it snowed in {place}.|Am {date} {x} hat es in {place} geschneit.
Today is {date}.|Heute ist der {date}.
The house was built in {x}.|Das Haus wurde {x} gebaut.
I've lived here since {x}.|Ich wohne seit {x} hier.
He was president from {x} to {y}.|Er war von {x} bis {y} Präsident.
It happened in {x}.|Es geschah im Jahr {x}.
Visit {x} for more information.|Besuchen Sie {x}, um mehr zu erfahren.
More information can be found at {x}.|Weitere Informationen finden Sie unter {x}.
You can find it at {x}.|Du findest es unter {x}.
See {x} for details.|Einzelheiten finden Sie unter {x}.
Our website is {x}.|Unsere Webseite ist {x}.
Have you seen {x} yet?|Hast du {x} schon gesehen?
I read it on {x}.|Ich habe es auf {x} gelesen.
Download the file from {x}.|Laden Sie die Datei von {x} herunter.
Click on {x} and log in.|Klicke auf {x} und melde dich an.
Write to {x}.|Schreib an {x}.
Please send it to {x}.|Bitte schicken Sie es an {x}.
Please send an email to {x}.|Bitte senden Sie eine E-Mail an {x}.
My email address is {x}.|Meine E-Mail-Adresse ist {x}.
{name}'s address is {x}.|{name}s Adresse ist {x}.
You can write to {name} at {x}.|Du kannst {name} unter {x} schreiben.
If you have questions, write to {x} or visit {y}.|Wenn Sie Fragen haben, schreiben Sie an {x} oder besuchen Sie {y}.
Open the file {x}.|Öffnen Sie die Datei {x}.
The file {x} was not found.|Die Datei {x} wurde nicht gefunden.
I saved it as {x}.|Ich habe es als {x} gespeichert.
Copy {x} to {y}.|Kopieren Sie {x} nach {y}.
Please read {x} first.|Bitte lies zuerst {x}.
The new version is {x}.|Die neue Version ist {x}.
We use version {x}.|Wir verwenden Version {x}.
I come from {place}.|Ich komme aus {place}.
{name} comes from {place}.|{name} kommt aus {place}.
I live in {place}.|Ich wohne in {place}.
We're going to {place} tomorrow.|Wir fahren morgen nach {place}.
My name is {name}.|Ich heiße {name}.
Do you know {name}?|Kennst du {name}?
This is my friend {name}.|Das ist mein Freund {name}.
{name} and I went to {place} last year.|{name} und ich sind letztes Jahr nach {place} gefahren.
I haven't seen {name} for {s} days.|Ich habe {name} seit {s} Tagen nicht gesehen.
{name} bought {s} apples for {x} euros.|{name} hat {s} Äpfel für {x} Euro gekauft.
"""

PATTERNS: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("en", "de"): [(line.split("|")[0], line.split("|")[1]) for line in _ENGLISH_GERMAN.strip().split("\n")]
}
"""The patterns of two languages, by their names."""
