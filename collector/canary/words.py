"""Words that common tokenizers have as one token each, for servers that do not say what their tokens are."""

from __future__ import annotations

_TEXT = """
    able also area away baby back ball band bank base bath bear beat been best bird blue boat body bone book born both
    bread bring built busy cake call came card care case cell city clear cloud coat cold come cook cool copy corn cost
    crew dark data date days dead deal deep desk door down draw dream drive drop dust each early east easy edge else
    even ever face fact fair fall farm fast fear feel feet field file film find fine fire fish five flat floor flow food
    foot form four free fresh from full game gave gift girl give glad glass goal gold gone good gray green grew grow
    hair half hall hand hard have head hear heart heat held help here high hill hold home hope horse hour house idea
    inch iron join jump just keep kind king knew know lake land last late lead leaf left less life lift light like line
    list live load long look lost loud love made mail main make many mark mass meal mean meat meet milk mind mine miss
    moon more most move much must name near neck need next nice nine noon north nose note once only open over pack page
    paid pair park part pass past path plan play poor post pull pure push race rain read real rest rice rich ride ring
    rise road rock role roof room root rule safe said salt same sand save seat seed seem seen self sell send ship shop
    show side sign sing site size skin slow snow soft soil some song soon sort soul south spot star stay step stop such
    suit sure swim take talk tall task team tell tend term test text than them then they thin this time tiny told tone
    took tool town tree trip true turn type unit upon vast very view vote wait walk wall want warm wash wave weak wear
    week well went were west what when wide wife wild will wind wine wing wise wish with wood word work yard year young
"""
WORDS = tuple(_TEXT.split())
