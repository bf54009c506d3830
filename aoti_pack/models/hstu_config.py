"""The sizes of an HSTU model, and the named presets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from aoti_pack.errors import UserError

TEN_YEARS = 10 * 365 * 24 * 3600  # seconds


@dataclass(frozen=True)
class HSTUConfig:
    """Every size and switch of the model; two models of equal configuration have equal shapes.

    Ids are counted from 1; row 0 of each table stands for padding and for every id outside the range.
    `contextual` names one `[b]` input per feature with the size of its vocabulary. `normaliser` is the N that
    attention weights are divided by; it is a constant, because an N taken from the batch would make an answer
    depend on its batch-mates. `time_span` is the largest gap that the time buckets tell apart, in the unit
    of the timestamps.
    """

    items: int
    actions: int = 10
    contextual: tuple[tuple[str, int], ...] = ()
    hidden: int = 64
    heads: int = 2
    head_dim: int = 32
    layers: int = 2
    max_history: int = 100
    max_candidates: int = 1024
    max_batch: int = 64
    normaliser: int = 200
    position_bias: bool = True
    position_buckets: int = 32
    time_bias: bool = True
    time_buckets: int = 48
    time_span: int = TEN_YEARS
    dropout: float = field(default=0.0)
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        positive = (
            "items actions hidden heads head_dim layers max_history max_candidates max_batch normaliser"
        )
        for name in [*positive.split(), "time_span"]:
            if getattr(self, name) < 1:
                raise UserError(f"HSTU setting {name} must be at least 1, got {getattr(self, name)}")
        for name in ("position_buckets", "time_buckets"):
            if getattr(self, name) < 3:
                raise UserError(f"HSTU setting {name} must be at least 3, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise UserError(f"HSTU setting dropout must lie in [0, 1), got {self.dropout}")
        names = [name for name, _ in self.contextual]
        if len(set(names)) != len(names):
            raise UserError(f"HSTU setting contextual names a feature twice: {', '.join(names)}")
        for name, size in self.contextual:
            if size < 1:
                raise UserError(f"contextual feature {name} needs a vocabulary of at least 1, got {size}")

    @property
    def max_tokens(self) -> int:
        """Tokens of the longest sequence: contextual features, then an item and an action per event."""
        return len(self.contextual) + 2 * self.max_history

    def replaced(self, **settings: object) -> HSTUConfig:
        """This configuration with some settings changed, checked for name and type.

        `contextual` may be given as text, `"region:50,device:8"`. Raises UserError for an unknown setting or
        a value of the wrong type.
        """
        known = {entry.name: entry for entry in dataclasses.fields(self)}
        changes: dict[str, object] = {}
        for name, value in settings.items():
            if name not in known:
                raise UserError(f"HSTU has no setting {name!r}", mend=f"choose from {', '.join(known)}")
            changes[name] = _typed(name, value, getattr(self, name))
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, object]:
        """The settings as plain values, for a checkpoint; `from_dict` reads them back."""
        settings = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        settings["contextual"] = ",".join(f"{name}:{size}" for name, size in self.contextual)
        return settings

    @classmethod
    def from_dict(cls, settings: dict[str, object]) -> HSTUConfig:
        """Inverse of `as_dict`."""
        return cls(items=1).replaced(**settings)


def _typed(name: str, value: object, current: object) -> object:
    if name == "contextual":
        return _contextual(value)
    wanted = type(current)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise UserError(f"HSTU setting {name} must be {wanted.__name__}, got {value!r}")
    return value


def _contextual(value: object) -> tuple[tuple[str, int], ...]:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, str):
        raise UserError(f"HSTU setting contextual must be text, got {value!r}", mend='write "region:50"')
    features = []
    for part in filter(None, value.split(",")):
        name, _, size = part.strip().partition(":")
        if not name.isidentifier() or not size.isdecimal():
            raise UserError(
                f"contextual feature {part!r} is not name:size", mend='write "region:50,device:8"'
            )
        features.append((name, int(size)))
    return tuple(features)


# The user features of KuaiRand-1K with the sizes of their vocabularies.
_KUAIRAND_FEATURES = (
    ("user_id", 1000),
    ("user_active_degree", 8),
    ("follow_user_num_range", 8),
    ("fans_user_num_range", 9),
    ("friend_user_num_range", 7),
    ("register_days_range", 8),
)
# KuaiRand's catalogue (4.4 million videos) is hashed into `items` rows.
_KUAIRAND = HSTUConfig(
    items=131_072,
    actions=16,
    contextual=_KUAIRAND_FEATURES,
    hidden=512,
    heads=4,
    head_dim=128,
    layers=3,
    max_history=4096,
    max_candidates=1024,
    max_batch=16,
    normaliser=8192,
    position_buckets=128,
    time_buckets=128,
)

PRESETS: dict[str, HSTUConfig] = {
    "tiny": HSTUConfig(
        items=200,
        actions=5,
        contextual=(("region", 8),),
        hidden=32,
        heads=2,
        head_dim=16,
        layers=2,
        max_history=32,
        max_candidates=32,
        max_batch=16,
        normaliser=64,
        position_buckets=16,
        time_buckets=16,
    ),
    # `items` is the catalogue of dslabs/movielens; training sets it to the catalogue at hand.
    "movielens": HSTUConfig(
        items=9066,
        hidden=64,
        heads=1,
        head_dim=64,
        layers=2,
        max_history=50,
        max_candidates=9066,
        max_batch=64,
        normaliser=100,
        dropout=0.2,
    ),
    "kuairand-3l": _KUAIRAND,
    "kuairand-8l": dataclasses.replace(_KUAIRAND, layers=8),
}


def preset(name: str) -> HSTUConfig:
    """The preset of that name; UserError when there is none."""
    if name not in PRESETS:
        raise UserError(f"HSTU has no preset {name!r}", mend=f"choose from {', '.join(PRESETS)}")
    return PRESETS[name]
