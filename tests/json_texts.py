"""JSON texts, and what RFC 8259 says about each.

The cases are those of JSONTestSuite by Nicolas Seriot (MIT License, github.com/nst/JSONTestSuite).
"""

from __future__ import annotations

ACCEPTED: dict[str, list[bytes]] = {
    "array": [
        b'[[]   ]', b'[""]', b'[]', b'["a"]', b'[false]', b'[null, 1, "1", {}]', b'[null]', b'[1\n]', b' [1]',
        b'[1,null,null,null,2]', b'[2] ',
    ],
    "number": [
        b'[123e65]', b'[0e+1]', b'[0e1]', b'[ 4]',
        b'[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]\n', b'[20e1]', b'[-0]',
        b'[-123]', b'[-1]', b'[1E22]', b'[1E-2]', b'[1E+2]', b'[123e45]', b'[123.456e78]', b'[1e-2]', b'[1e+2]',
        b'[123]', b'[123.456789]',
    ],
    "object": [
        b'{"asd":"sdf", "dfg":"fgh"}', b'{"asd":"sdf"}', b'{"a":"b","a":"c"}', b'{"a":"b","a":"b"}', b'{}',
        b'{"":0}', b'{"foo\\u0000bar": 42}', b'{ "min": -1.0e+28, "max": 1.0e+28 }',
        b'{"x":[{"id": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}], "id": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}',
        b'{"a":[]}',
        b'{"title":"\\u041f\\u043e\\u043b\\u0442\\u043e\\u0440\\u0430 \\u0417" }',
        b'{\n"a": "b"\n}',
    ],
    "string": [
        b'["\\u0060\\u012a\\u12AB"]', b'["\\uD801\\udc37"]', b'["\\ud83d\\ude39\\ud83d\\udc8d"]',
        b'["\\"\\\\\\/\\b\\f\\n\\r\\t"]', b'["\\\\u0000"]', b'["\\""]', b'["a/*b*/c/*d//e"]', b'["\\\\a"]',
        b'["\\\\n"]', b'["\\u0012"]', b'["\\uFFFF"]', b'["asd"]', b'[ "asd"]', b'["\\uDBFF\\uDFFF"]',
        b'["new\\u00A0line"]', b'["\xf4\x8f\xbf\xbf"]', b'["\xef\xbf\xbf"]', b'["\\u0000"]', b'["\\u002c"]',
        b'["\xcf\x80"]', b'["\xf0\x9b\xbf\xbf"]', b'["asd "]', b'" "', b'["\\uD834\\uDd1e"]', b'["\\u0821"]',
        b'["\\u0123"]', b'["\xe2\x80\xa8"]', b'["\xe2\x80\xa9"]', b'["\\u0061\\u30af\\u30EA\\u30b9"]',
        b'["new\\u000Aline"]', b'["\x7f"]', b'["\\uA66D"]', b'["\\u005C"]',
        b'["\xe2\x8d\x82\xe3\x88\xb4\xe2\x8d\x82"]', b'["\\uDBFF\\uDFFE"]', b'["\\uD83F\\uDFFE"]', b'["\\u200B"]',
        b'["\\u2064"]', b'["\\uFDD0"]', b'["\\uFFFE"]', b'["\\u0022"]', b'["\xe2\x82\xac\xf0\x9d\x84\x9e"]',
        b'["a\x7fa"]',
    ],
    "structure": [
        b'false', b'42', b'-0.1', b'null', b'"asd"', b'true', b'""', b'["a"]\n', b'[true]', b' [] ',
    ],
}  # fmt: skip
"""Every parser has to accept these."""

REFUSED: dict[str, list[bytes]] = {
    "array": [
        b'[1 true]', b'[a\xe5]', b'["": 1]', b'[""],', b'[,1]', b'[1,,2]', b'["x",,]', b'["x"]]', b'["",]', b'["x"',
        b'[x', b'[3[4]]', b'[\xff]', b'[1:2]', b'[,]', b'[-]', b'[   , ""]', b'["a",\n4\n,1,', b'[1,]', b'[1,,]',
        b'["\x0ba"\\f]', b'[*]', b'[""', b'[1,', b'[1,\n1\n,1', b'[{}',
    ],
    "structure": [
        b'[fals]', b'[nul]', b'[tru]', b'123\x00', b' ', b"[" * 100_000, b'[\xe2\x81\xa0]', b'\xef\xbb\xbf', b'<.>',
        b'[<null>]', b'[1]x', b'[1]]', b'["asd]', b'a\xc3\xa5', b'[True]', b'1]', b'{"x": true,', b'[][]', b']',
        b'\xef\xbb{}', b'\xe5', b'[', b'', b'[\x00]', b'2@', b'{}}', b'{"":', b'{"a":/*comment*/"b"}',
        b'{"a": true} "x"', b"['", b'[,', b'[{"":' * 50_000, b'[{', b'["a', b'["a"', b'{', b'{]', b'{,', b'{[',
        b'{"a', b"{'a'", b'["\\{["\\{["\\{["\\{', b'\xe9', b'*', b'{"a":"b"}#{}', b'[\\u000A""]', b'[1',
        b'[ false, nul', b'[ true, fals', b'[ false, tru', b'{"asd":"asd"', b'\xc3\xa5', b'[\x0c]',
    ],
    "number": [
        b'[++1234]', b'[+1]', b'[+Inf]', b'[-01]', b'[-1.0.]', b'[-2.]', b'[-NaN]', b'[.-1]', b'[.2e-3]', b'[0.1.2]',
        b'[0.3e+]', b'[0.3e]', b'[0.e1]', b'[0E+]', b'[0E]', b'[0e+]', b'[0e]', b'[1.0e+]', b'[1.0e-]', b'[1.0e]',
        b'[1 000.0]', b'[1eE2]', b'[2.e+3]', b'[2.e-3]', b'[2.e3]', b'[9.e+]', b'[Inf]', b'[NaN]', b'[\xef\xbc\x91]',
        b'[1+2]', b'[0x1]', b'[0x42]', b'[Infinity]', b'[0e+-1]', b'[-123.123foo]', b'[123\xe5]', b'[1e1\xe5]',
        b'[0\xe5]\n', b'[-Infinity]', b'[-foo]', b'[- 1]', b'[-012]', b'[-.123]', b'[-1x]', b'[1ea]', b'[1e\xe5]',
        b'[1.]', b'[.123]', b'[1.2a-3]', b'[1.8011670033376514H-308]', b'[012]',
    ],
    "object": [
        b'["x", truth]', b'{[: "x"}\n', b'{"x", null}', b'{"x"::"b"}', b'{\xf0\x9f\x87\xa8\xf0\x9f\x87\xad}',
        b'{"a":"a" 123}', b"{key: 'value'}", b'{"\xb9":"0",}', b'{"a" b}', b'{:"b"}', b'{"a" "b"}', b'{"a":',
        b'{"a"', b'{1:1}', b'{9999E9999:1}', b'{null:null,null:null}', b'{"id":0,,,,,}', b"{'a':0}", b'{"id":0,}',
        b'{"a":"b"}/**/', b'{"a":"b"}/**//', b'{"a":"b"}//', b'{"a":"b"}/', b'{"a":"b",,"c":"d"}', b'{a: "b"}',
        b'{"a":"a', b'{ "foo" : "bar", "a" }', b'{"a":"b"}#',
    ],
    "string": [
        b'["\\uD800\\"]', b'["\\uD800\\u"]', b'["\\uD800\\u1"]', b'["\\uD800\\u1x"]', b'[\xc3\xa9]', b'["\\\x00"]',
        b'["\\x00"]', b'["\\\\\\"]', b'["\\\t"]', b'["\\\xf0\x9f\x8c\x80"]', b'["\\"]', b'["\\u00A"]',
        b'["\\uD834\\uDd"]', b'["\\uD800\\uD800\\x"]', b'["\\u\xe5"]', b'["\\a"]', b'["\\uqqqq"]', b'["\\\xe5"]',
        b'[\\u0020"asd"]', b'[\\n]', b'"', b"['single quote']", b'abc', b'["\\', b'["a\x00a"]', b'["new\nline"]',
        b'["\t"]', b'"\\UA66D"', b'""x',
    ],
}  # fmt: skip
"""Every parser has to refuse these."""

FREE: dict[str, list[bytes]] = {
    "number": [
        b'[123.456e-789]',
        b'[0.4e00669999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999999969999999006]',
        b'[-1e+9999]', b'[1.5e+9999]', b'[-123123e100000]', b'[123123e100000]', b'[123e-10000000]',
        b'[-123123123123123123123123123123]', b'[100000000000000000000]',
        b'[-237462374673276894279832749832423479823246327846]',
    ],
    "object": [
        b'{"\\uDFAA":0}',
    ],
    "string": [
        b'["\\uDADA"]', b'["\\uD888\\u1234"]', b'\xff\xfe[\x00"\x00\xe9\x00"\x00]\x00',
        b'["\xe6\x97\xa5\xd1\x88\xfa"]', b'["\xed\xa0\x80"]', b'["\\uD800\\n"]', b'["\\uDd1ea"]',
        b'["\\uD800\\uD800\\n"]', b'["\\ud800"]', b'["\\ud800abc"]', b'["\xff"]', b'["\\uDd1e\\uD834"]', b'["\xe9"]',
        b'["\\uDFAA"]', b'["\x81"]', b'["\xf4\xbf\xbf\xbf"]', b'["\xc0\xaf"]', b'["\xfc\x83\xbf\xbf\xbf\xbf"]',
        b'["\xfc\x80\x80\x80\x80\x80"]', b'["\xe0\xff"]', b'\x00[\x00"\x00\xe9\x00"\x00]',
        b'[\x00"\x00\xe9\x00"\x00]\x00',
    ],
    "structure": [
        b"[" * 500 + b"]" * 500, b'\xef\xbb\xbf{}',
    ],
}  # fmt: skip
"""A parser may accept or refuse these."""
