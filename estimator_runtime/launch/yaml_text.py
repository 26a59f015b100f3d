"""Writes plain values as YAML that people like to read."""

import json
import re

from estimator_runtime.errors import ConfigError

# What YAML 1.1 and 1.2 both take for the same text, without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*\Z")
# What JSON may hold as it is, and YAML reads as the end of a line, or not at all.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def documents(values):
    """Return several values as one text, with `---` between them.

    Raises:
        ConfigError: If a text in them has bytes that are not UTF-8.
    """
    return "---\n".join("\n".join(_lines(value)) + "\n" for value in values)


def _lines(value):
    """Give a mapping or a list as lines, not indented."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _entry(f"{_scalar(key)}:", each)
    else:
        for each in value:
            if isinstance(each, dict | list) and each:
                first, *rest = _lines(each)
                yield f"- {first}"
                yield from (f"  {line}" for line in rest)
            else:
                yield f"- {_scalar(each)}"


def _entry(key, value):
    if isinstance(value, dict | list) and value:
        yield key
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value):
    is_plain = isinstance(value, str) and _PLAIN.match(value)
    if is_plain and value.lower() not in _WORDS:
        return value
    # JSON is YAML, but for characters in two halves, which are escaped as such there.
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{value!r} is not UTF-8, and a manifest can have no other text; rename "
            "the file, or give another argument"
        ) from error
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
