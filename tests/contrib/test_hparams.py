"""HParams keep their types, as in TensorFlow 1.15."""

import json

import pytest

from estimator_runtime.contrib.learning.hparams import HParams, parse_values
from estimator_runtime.errors import ConfigError, ConfigKeyError, ConfigTypeError


def _hparams():
    return HParams(depth=2, rate=0.5, name="net", is_wide=True, sizes=[1, 2], any=None)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("depth=3", {"depth": 3}),
        ("rate=1,depth=-4", {"rate": 1.0, "depth": -4}),
        ("rate = 1e-3 , name= a b", {"rate": 0.001, "name": "a b"}),
        ("is_wide=false", {"is_wide": False}),
        ("is_wide=1", {"is_wide": True}),
        ("sizes=[3,4, 5],depth=1", {"sizes": [3, 4, 5], "depth": 1}),
        ("name=", {"name": ""}),
        ("name=a=b", {"name": "a=b"}),
        ("any=x", {"any": "x"}),
        ("", {}),
    ],
)
def test_a_text_overrides_values(text, values):
    given = _hparams()
    assert given.parse(text) is given
    assert given.values() == {**_hparams().values(), **values}
    assert {name: type(each) for name, each in given.values().items()} == {
        **{name: type(each) for name, each in _hparams().values().items()},
        **{name: type(each) for name, each in values.items()},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("depth=1.5", "depth is set to '1.5', which is no int"),
        ("rate=fast", "no float"),
        ("is_wide=maybe", "no bool"),
        ("width=3", "'width' in 'width=3' is unknown"),
        ("depth", "'depth' is not an assignment"),
        ("depth=1;rate=2", "no int"),
        ("depth=1,depth=2", "depth more than once"),
        ("sizes=3", r"sizes is set to 3, but it is a list"),
        ("depth=[3]", r"depth is set to \[3\], but it is a single value"),
        ("sizes[0]=3", "but it is a list"),
    ],
)
def test_what_cannot_be_read_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        _hparams().parse(text)


def test_elements_are_parsed_by_their_index():
    found = parse_values("a[1]=2,a[0]=3,b=x,c=7", {"a": int, "b": str}, True)
    assert found == {"a": {1: 2, 0: 3}, "b": "x"}
    for text in ("a[1]=2,a[1]=3", "a[0]=[1]", "a=1,a[0]=2"):
        with pytest.raises(ConfigError, match="a second time"):
            parse_values(text, {"a": int})


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("rate", 1, 1.0),
        ("sizes", [7], [7]),
        ("name", "x", "x"),
        ("any", [1, "a"], None),
        ("any", 3, 3),
    ],
)
def test_a_value_is_cast_to_its_type(name, value, stored):
    given = _hparams()
    if stored is None:
        with pytest.raises(ConfigError, match="single value"):
            given.set_hparam(name, value)
        return
    given.set_hparam(name, value)
    assert getattr(given, name) == stored
    assert type(getattr(given, name)) is type(stored)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depth", 1.0),
        ("depth", True),
        ("depth", "1"),
        ("rate", "1"),
        ("is_wide", 1),
        ("name", 3),
        ("sizes", [1.5]),
    ],
)
def test_a_value_of_another_type_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} is set to"):
        _hparams().set_hparam(name, value)


def test_hparams_are_added_and_removed():
    given = HParams(a=1)
    given.add_hparam("b", [1.5])
    assert ("b" in given, list(given), given.get("b")) == (True, ["a", "b"], [1.5])
    given.del_hparam("b")
    given.del_hparam("b")
    assert ("b" in given, hasattr(given, "b"), given.get("b", 7)) == (False, False, 7)
    for name in ("a", "parse", "values"):
        with pytest.raises(ConfigError, match="attribute already"):
            given.add_hparam(name, 1)
    with pytest.raises(ConfigError, match="at least one element"):
        given.add_hparam("c", [])
    with pytest.raises(ConfigKeyError, match="there is no 'x'; there are a"):
        given.set_hparam("x", 1)
    with pytest.raises(ConfigTypeError, match="HParamDef"):
        HParams(hparam_def=object())


def test_the_default_of_get_has_the_type_of_the_value():
    given = _hparams()
    assert given.get("rate", 1) == 0.5
    for name, default in (("depth", 0.5), ("sizes", 1), ("name", 1)):
        with pytest.raises(ConfigError, match=name):
            given.get(name, default)


def test_values_go_to_json_and_back():
    given = HParams(b=1, a=[1.5], f=len)
    assert given.to_json(sort_keys=True) == '{"a": [1.5], "b": 1}'
    assert given.parse_json(json.dumps({"a": [2.5, 3]})).a == [2.5, 3.0]
    with pytest.raises(ConfigError, match="is not JSON"):
        given.parse_json("{")


def test_hparams_are_shown_by_name():
    given = HParams(b=1, a="x")
    assert str(given) == "[('a', 'x'), ('b', 1)]"
    assert repr(given) == "HParams([('a', 'x'), ('b', 1)])"


def test_a_model_structure_is_kept():
    given = HParams(model_structure="s")
    assert given.get_model_structure() == "s"
    given.set_model_structure("t")
    assert given.get_model_structure() == "t"
