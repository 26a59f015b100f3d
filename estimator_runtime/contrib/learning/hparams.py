"""`tf.contrib.training.HParams`: hyperparameters with types, as in TensorFlow 1.15."""

from __future__ import annotations

import json
import numbers
import re
from collections.abc import Iterator, Mapping
from typing import Any

from estimator_runtime.errors import ConfigError, ConfigKeyError, ConfigTypeError

__all__ = ["HParams", "parse_values"]

# One assignment at the start of a text, and the comma after it.
_ASSIGNMENT = re.compile(
    r"\s*(?P<name>[a-zA-Z][\w.]*)\s*(?:\[\s*(?P<index>\d+)\s*\])?\s*="
    r"\s*(?:\[(?P<items>[^\]]*)\]|(?P<value>[^,\[]*))\s*(?:,|$)"
)
_TRUTHS = {"true": True, "True": True, "false": False, "False": False}


class HParams:
    """Named values that keep their types.

    Each hyperparameter is an attribute. Its type is that of its first value, or of the
    first element if that is a list; `parse`, `override_from_dict` and `set_hparam` cast
    to it, and refuse what cannot be cast without loss. To assign an attribute checks
    nothing.

    Args:
        hparam_def: Must be None: the protocol buffer of TensorFlow 1 is gone.
        model_structure: Any object that `get_model_structure` returns.
        **kwargs: The hyperparameters. A value of None can later take any type.

    Raises:
        ConfigError: (a ValueError) If a name is that of an attribute or method, or a
            value is an empty list.
        ConfigTypeError: (a TypeError) If `hparam_def` is not None.
    """

    _HAS_DYNAMIC_ATTRIBUTES = True  # For pytype, as in TensorFlow 1.

    def __init__(
        self, hparam_def: None = None, model_structure: Any = None, **kwargs: Any
    ) -> None:
        if hparam_def is not None:
            raise ConfigTypeError(
                "HParams: hparam_def is not supported, because TensorFlow 2 has no "
                "HParamDef; give the hyperparameters as keywords"
            )
        self._hparam_types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter.

        Args:
            name: A name that is no attribute yet.
            value: An int, float, str, bool, None, a list of one of them that is not
                empty, or any other object.

        Raises:
            ConfigError: If the name is taken, or the value an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ConfigError(
                f"HParams: {name!r} is the name of an attribute already; use another"
            )
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ConfigError(
                f"HParams: {name} is {value!r}; give at least one element, from which "
                "the type of the others follows"
            )
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Set a hyperparameter to a value, cast to its type.

        Raises:
            ConfigKeyError: (a KeyError) If there is no such hyperparameter.
            ConfigError: If the value cannot be cast without loss, or is a list where
                a single value is due, or the other way round.
        """
        kind, is_list = self._type_of(name)
        if isinstance(value, list) != is_list:
            raise ConfigError(
                f"HParams: {name} is set to {value!r}, but it is "
                + ("a list" if is_list else "a single value")
            )
        cast = [_cast(name, kind, each) for each in (value if is_list else [value])]
        setattr(self, name, cast if is_list else cast[0])

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter, if there is one of this name."""
        if name in self._hparam_types:
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Override hyperparameters from a text such as "depth=3,rates=[0.1,0.5]".

        Args:
            values: Assignments between commas; see `parse_values`. One element of a
                list cannot be assigned here.

        Returns:
            This object.

        Raises:
            ConfigError: If the text cannot be read, or names no hyperparameter.
        """
        types = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, types))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Override hyperparameters, each as `set_hparam` does, and return this object.

        Raises:
            ConfigKeyError: If there is no such hyperparameter.
            ConfigError: If a value does not fit.
        """
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> HParams:
        """Override hyperparameters from a JSON object, and return this object.

        Raises:
            ConfigKeyError: If there is no such hyperparameter.
            ConfigError: If the text is not JSON, or a value does not fit.
        """
        try:
            values = json.loads(values_json)
        except ValueError as error:
            raise ConfigError(
                f"HParams: {values_json!r} is not JSON: {error}"
            ) from None
        return self.override_from_dict(values)

    def to_json(
        self,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Return the values as a JSON object, without those that are functions."""
        values = {
            key: each for key, each in self.values().items() if not callable(each)
        }
        return json.dumps(
            values, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def values(self) -> dict[str, Any]:
        """Return the values by name."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a hyperparameter, or a default if there is none.

        Raises:
            ConfigError: If the hyperparameter exists and `default`, other than None,
                has another type.
        """
        if key not in self._hparam_types:
            return default
        if default is not None:
            kind, is_list = self._hparam_types[key]
            if isinstance(default, list) != is_list:
                raise ConfigError(
                    f"HParams: the default of {key}, {default!r}, has another type "
                    f"than its value, {getattr(self, key)!r}"
                )
            for each in default if is_list else [default]:
                _cast(key, kind, each)
        return getattr(self, key)

    def set_model_structure(self, model_structure: Any) -> None:
        """Set the object that `get_model_structure` returns."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Return the object given as `model_structure`."""
        return self._model_structure

    def _type_of(self, name: str) -> tuple[type, bool]:
        if name not in self._hparam_types:
            raise ConfigKeyError(
                f"HParams: there is no {name!r}; there are "
                + (", ".join(sorted(self._hparam_types)) or "none")
            )
        return self._hparam_types[name]

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __iter__(self) -> Iterator[str]:
        return iter(self._hparam_types)

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


def parse_values(
    values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
    """Return the values that a text assigns, such as "depth=3,rates=[0.1,0.5]".

    Args:
        values: Assignments between commas: `name=value`, `name=[value,value]`, or
            `name[index]=value`. A value contains no comma and no bracket. A bool is
            true, True, false, False, or an int that is not 0 for true.
        type_map: The type of each name, or of the elements of its list.
        ignore_unknown: Whether to leave out names that are not in `type_map`.

    Returns:
        By name a value or a list; for assignments to elements, a dict by index.

    Raises:
        ConfigError: If the text cannot be read, a value does not fit its type, or a
            name is unknown or assigned twice.
    """
    found: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if match is None:
            raise ConfigError(
                f"HParams: {values[position:]!r} is not an assignment; write "
                "name=value or name=[value,value], with commas between assignments"
            )
        position = match.end()
        name, index = match["name"], match["index"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ConfigError(
                f"HParams: {name!r} in {values!r} is unknown; there are "
                + (", ".join(sorted(type_map)) or "none")
            )
        kind = type_map[name]
        items = match["items"]
        if index is not None:
            elements = found.setdefault(name, {})
            if (
                items is not None
                or not isinstance(elements, dict)
                or (int(index) in elements)
            ):
                raise ConfigError(
                    f"HParams: {match[0].strip(' ,')!r} in {values!r} assigns a list "
                    "to an element, or a second time"
                )
            elements[int(index)] = _parsed(name, kind, match["value"])
            continue
        if name in found:
            raise ConfigError(f"HParams: {values!r} assigns {name} more than once")
        if items is None:
            found[name] = _parsed(name, kind, match["value"])
        else:
            found[name] = [
                _parsed(name, kind, each) for each in re.split("[ ,]", items) if each
            ]
    return found


def _parsed(name: str, kind: Any, text: str) -> Any:
    """Return a text as a value of a type."""
    text = text.strip() if kind is not str else text
    try:
        if issubclass(kind, bool):
            return _TRUTHS[text] if text in _TRUTHS else bool(int(text))
        if kind is type(None):
            return text
        return kind(text)
    except (TypeError, ValueError):
        raise ConfigError(
            f"HParams: {name} is set to {text!r}, which is no {kind.__name__}"
        ) from None


def _cast(name: str, kind: Any, value: Any) -> Any:
    """Return a value as one of a type, if that loses nothing."""
    if kind is type(None) or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    is_text = issubclass(kind, (str, bytes)), isinstance(value, (str, bytes))
    is_bool = issubclass(kind, bool), isinstance(value, bool)
    is_cut = issubclass(kind, numbers.Integral) and not isinstance(
        value, numbers.Integral
    )
    is_number = issubclass(kind, numbers.Number), isinstance(value, numbers.Number)
    if is_cut or any(a != b for a, b in (is_text, is_bool, is_number)):
        raise ConfigError(
            f"HParams: {name} is set to {value!r} ({type(value).__name__}), but its "
            f"type is {kind.__name__}"
        )
    return kind(value)
