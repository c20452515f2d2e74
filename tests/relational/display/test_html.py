"""Tables as HTML: an exact one, and that nothing of the rows is taken for markup."""

from xml.etree import ElementTree

import pyarrow as pa

from relational.display.html import html_of, html_of_text


def test_a_table():
    table = pa.table({"id": [1, None, 3], "a<b>": ["<script>alert('x')</script>", "NULL", None]})
    assert html_of(table, max_rows=2) == (
        '<div><table>\n<thead><tr><th style="text-align: right; white-space: pre">id<br><small>BIGINT</small></th>'
        '<th style="text-align: left; white-space: pre">a&lt;b&gt;<br><small>VARCHAR</small></th></tr></thead>\n'
        '<tbody>\n<tr><td style="text-align: right; white-space: pre">1</td>'
        '<td style="text-align: left; white-space: pre">&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;</td></tr>\n'
        '<tr><td style="text-align: right; white-space: pre"><i>NULL</i></td>'
        '<td style="text-align: left; white-space: pre">&#x27;NULL&#x27;</td></tr>\n'
        '</tbody>\n</table>\n<small>3 rows, first 2 shown</small></div>'
    )


def test_all_that_is_not_markup_is_text():
    hostile = ["</td></table>", "&amp;", '"onmouseover="x', "\x1b[0m\n\u202e", "]]>", "<!--", "x" * 1_000]
    table = pa.table({**{each: [each] for each in hostile}, "s": [[{"<b>": "</b>"}]], "b": [b"<i>"]})
    tree = ElementTree.fromstring(html_of(table, max_rows=5, all_columns=20).replace("<br>", "<br/>"))
    cells = ["".join(each.itertext()) for each in tree.iter("td")]
    assert cells[:3] == hostile[:3]
    assert cells[3] == r"\x1b[0m\n\u202e"
    assert cells[4:6] == hostile[4:6]
    assert cells[6] == "x" * 199 + "…"
    assert tree.find("small").text == "1 row, 9 of 20 columns"


def test_without_columns_and_a_text():
    assert html_of(pa.table({}), max_rows=5) == "<div><small>0 rows</small></div>"
    assert html_of_text("<a>\n&") == "<pre>&lt;a&gt;\n&amp;</pre>"
