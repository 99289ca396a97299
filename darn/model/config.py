"""What a DARN is made of, and which data it can have produced."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from darn.model.categories import Category, categories_header, categories_of

__all__ = ["MAX_LINEAR", "DARNConfig", "LocalConfig", "PixelCNNConfig", "check_data", "check_plain", "used_fields"]

MAX_LINEAR = 10_000
"""Most visible units with a linear conditional."""

MAX_LAYERS = 100
"""Most layers of one kind in a model."""

Activation = Literal["tanh", "relu"]
Encoder = Literal["factorial", "linear", "nade", "made"]
Prior = Literal["factorial", "linear", "nade", "eonade", "made"]
VisibleConditional = Literal["factorial", "linear", "nade", "eonade", "made", "local", "pixelcnn"]
Observations = Literal["binary", "intensities"]
Precision = Literal["float32", "float64"]
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class LocalConfig:
    """Locally connected layers between an image and a stochastic layer, or stochastic ones themselves.

    :param image_shape: height and width of an image.
    :param kernels: sides of the kernels of the locally connected layers, from the image up; multiples of their strides.
    :param strides: strides of the locally connected layers, from the image up.
    :param filters: numbers of filters of the locally connected layers, from the image up.
    :param period: period P of the weight sharing in locally connected layers; 1 is a convolution.
    :param visible_kernel: side of the window in which a pixel sees earlier pixels, with visible_conditional=local; odd.
    :param visible_period: period of the weight sharing of that window.
    :param stochastic: the units of the locally connected layers are stochastic, as in the paper's Figure 5, and the
        other stochastic layers are above them.
    :param units_kernel: side of the window of places in which a stochastic unit of a locally connected layer sees
        earlier ones in the decoder; odd.
    :raises ValueError: naming the field that is wrong.
    """

    image_shape: tuple[int, int]
    kernels: tuple[int, ...] = (8, 4)
    strides: tuple[int, ...] = (4, 2)
    filters: tuple[int, ...] = (32, 32)
    period: int = 8
    visible_kernel: int = 15
    visible_period: int = 14
    stochastic: bool = False
    units_kernel: int = 3

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """Rows, columns and channels of the image and of each locally connected layer."""
        # A layer has a place for each stride of the one below, the last of which may reach beyond its end.
        grids = [(*self.image_shape, 1)]
        for stride, filters in zip(self.strides, self.filters, strict=True):
            rows, columns, _ = grids[-1]
            grids.append((-(-rows // stride), -(-columns // stride), filters))
        return grids

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of the locally connected layers if these are stochastic: the first of `DARNConfig.hidden`."""
        return tuple(math.prod(grid) for grid in self.grids[1:]) if self.stochastic else ()

    def __post_init__(self) -> None:
        # Each field by itself.
        for name in ("image_shape", "kernels", "strides", "filters"):
            object.__setattr__(self, name, _whole_numbers(f"{name} of local layers", getattr(self, name)))
        for name in ("period", "visible_kernel", "visible_period", "units_kernel"):
            object.__setattr__(self, name, check_whole(f"{name} of local layers", getattr(self, name)))
        if not isinstance(self.stochastic, bool):
            raise ValueError(f"stochastic of local layers must be True or False, got {self.stochastic!r}.")
        # Fields together.
        if len(self.image_shape) != 2:
            raise ValueError(f"image_shape must be height and width, got {self.image_shape}.")
        if not len(self.kernels) == len(self.strides) == len(self.filters) >= 1:
            raise ValueError(
                "kernels, strides and filters must name the same number of layers, got "
                f"{self.kernels}, {self.strides} and {self.filters}."
            )
        if any(kernel % stride for kernel, stride in zip(self.kernels, self.strides, strict=True)):
            raise ValueError(f"kernels must be multiples of their strides, got {self.kernels} and {self.strides}.")
        for name in ("visible_kernel", "units_kernel"):
            if getattr(self, name) % 2 == 0:
                raise ValueError(f"{name} must be odd, got {getattr(self, name)}.")


@dataclasses.dataclass(frozen=True)
class PixelCNNConfig:
    """A PixelCNN over the pixels of an image.

    :param image_shape: height and width of an image.
    :param layers: gated layers, the first one among them.
    :param filters: filters of each layer of both stacks.
    :param first_kernel: side of the window of the first layer, odd.
    :param kernel: side of the windows of the other layers, odd.
    :param maps: maps of the image that the stochastic units make for the gates; the first is also added to the logits.
    :raises ValueError: naming the field that is wrong.
    """

    image_shape: tuple[int, int]
    layers: int = 5
    filters: int = 16
    first_kernel: int = 7
    kernel: int = 3
    maps: int = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_shape", _whole_numbers("image_shape of a PixelCNN", self.image_shape))
        if len(self.image_shape) != 2:
            raise ValueError(f"image_shape of a PixelCNN must be height and width, got {self.image_shape}.")
        for name in ("layers", "filters", "maps", "first_kernel", "kernel"):
            object.__setattr__(self, name, check_whole(f"{name} of a PixelCNN", getattr(self, name)))
        if self.layers > MAX_LAYERS:
            raise ValueError(f"layers of a PixelCNN must be at most {MAX_LAYERS}, got {self.layers}.")
        for name in ("first_kernel", "kernel"):
            if (value := getattr(self, name)) < 3 or value % 2 == 0:
                raise ValueError(f"{name} of a PixelCNN must be odd and at least 3, got {value}.")


@dataclasses.dataclass(frozen=True)
class DARNConfig:
    """What a DARN is made of.

    :param visible: number of visible units n_x.
    :param hidden: stochastic units of each layer, from the one next to the data to the top, as 500 or 200,50; none for
        a fully visible model, such as the FVSBN (visible_conditional=linear) and NADE.
    :param units: deterministic units of each layer between two stochastic ones, in order, as 200 or 200,100; none for a
        linear map.
    :param activation: activation function of the deterministic units.
    :param skip: each stochastic layer sees all stochastic layers beyond it, and not the next one alone.
    :param encoder: how the units of a stochastic layer depend on each other in the encoder q(h | x); factorial: not at
        all.
    :param prior: how the units of a stochastic layer depend on each other in the decoder p(x, h).
    :param visible_conditional: how visible units depend on each other given the stochastic ones; linear: the paper's
        Eq. (5); factorial: not at all, as in the paper on MNIST; local: by a window of earlier pixels; pixelcnn: by
        gated masked convolutions over all earlier pixels.
    :param conditional_units: deterministic units of each NADE, EoNADE or MADE among the conditionals.
    :param orders: orders of the units that EoNADE and MADE in the decoder average over; one of them is drawn for each
        step of training (EoNADE: an order for each row). 16 for EoNADE and 1 for MADE if this is not given.
    :param observations: binary visible units, or intensities in [0, 1], whose cross-entropy is the cost.
    :param local: locally connected layers between the image and the first stochastic layer, in place of `units` there;
        or the first stochastic layers: `hidden` begins with `local.hidden` then.
    :param pixelcnn: what the PixelCNN is made of, with visible_conditional=pixelcnn.
    :param categories: visible units that are one variable each, as :class:`Category`: no sample has two levels of one,
        or none of one that is never missing. For visible_conditional=linear.
    :param dtype: precision of the parameters and of all that is computed with them.
    :raises ValueError: naming the field that is wrong.
    """

    visible: int
    hidden: tuple[int, ...] = (100,)
    units: tuple[int, ...] = ()
    activation: Activation = "tanh"
    skip: bool = False
    encoder: Encoder = "factorial"
    prior: Prior = "linear"
    visible_conditional: VisibleConditional = "linear"
    conditional_units: int = 100
    orders: int | None = None
    observations: Observations = "binary"
    local: LocalConfig | None = None
    pixelcnn: PixelCNNConfig | None = None
    dtype: Precision = "float32"
    categories: tuple[Category, ...] = ()

    def __post_init__(self) -> None:
        # Sequences and dictionaries, as JSON has them, become tuples and configurations.
        for name in ("hidden", "units"):
            object.__setattr__(self, name, _whole_numbers(name, getattr(self, name), "numbers of units"))
        for name, kind in (("local", LocalConfig), ("pixelcnn", PixelCNNConfig)):
            if isinstance(value := getattr(self, name), dict):
                object.__setattr__(self, name, kind(**value))
            elif not isinstance(value, kind | None):
                raise ValueError(f"{name} must be a {kind.__name__}, or None, got {value!r}.")
        # Each field by itself; whole numbers of NumPy become Python's, which JSON has.
        for name in ("visible", "conditional_units", "orders"):
            if name != "orders" or self.orders is not None:
                object.__setattr__(self, name, check_whole(name, getattr(self, name)))
        if not isinstance(self.skip, bool):
            raise ValueError(f"skip must be True or False, got {self.skip!r}.")
        for name, choices in (
            ("activation", Activation),
            ("encoder", Encoder),
            ("prior", Prior),
            ("visible_conditional", VisibleConditional),
            ("observations", Observations),
            ("dtype", Precision),
        ):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {getattr(self, name)!r}.")
        # Fields together.
        self._check_what_is_used()
        self._check_images()
        self._check_categories()
        if self.visible_conditional == "linear" and self.visible > MAX_LINEAR:
            raise ValueError(
                f"visible_conditional='linear' has visible**2 weights and takes at most {MAX_LINEAR} units, got "
                f"{self.visible}; give 'factorial', or 'local' for images."
            )

    def _check_images(self) -> None:
        # Which of the two kinds of images there is, and that nothing else is given with it.
        if self.local is None and self.visible_conditional == "local":
            raise ValueError("visible_conditional='local' needs `local`, which says how images are connected.")
        if (self.pixelcnn is None) == (self.visible_conditional == "pixelcnn"):
            raise ValueError(
                "visible_conditional='pixelcnn' needs `pixelcnn`, what it is made of, and nothing else takes it; "
                f"got visible_conditional={self.visible_conditional!r} and pixelcnn={self.pixelcnn}."
            )
        if self.local is not None and self.pixelcnn is not None:
            raise ValueError("a PixelCNN has dense layers above it; leave out `local`, or give another conditional.")
        if self.local is not None and self.local.stochastic:
            self._check_stack(self.local.hidden)
        # Each visible unit is a pixel.
        for images in (self.local, self.pixelcnn):
            if images is not None and (size := math.prod(images.image_shape)) != self.visible:
                raise ValueError(f"images of {images.image_shape} pixels need visible={size}, got {self.visible}.")

    def _check_categories(self) -> None:
        try:
            header = categories_header(self.categories)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"categories must be pairs of columns and whether one is always 1, got {self.categories!r}; "
                "as_categories(groups, data) makes them."
            ) from error
        object.__setattr__(self, "categories", categories_of(header, self.visible))
        if self.categories and (self.visible_conditional != "linear" or self.observations != "binary"):
            raise ValueError(
                "categories are for binary observations and visible_conditional='linear', got "
                f"{self.observations!r} and {self.visible_conditional!r}; leave one of them out."
            )

    def _check_stack(self, local: tuple[int, ...]) -> None:
        if self.hidden[: len(local)] != local:
            raise ValueError(
                f"hidden must begin with the units of the local layers, {', '.join(map(str, local))}, got "
                f"{self.hidden}; give (*local.hidden, ...) with the layers above them."
            )
        if self.skip or self.encoder != "factorial":
            raise ValueError(
                "stochastic local layers see the next layer alone and have a factorial encoder; leave out skip and "
                f"encoder, got skip={self.skip} and encoder={self.encoder!r}."
            )

    def _check_what_is_used(self) -> None:
        for name, reason in _unused(dataclasses.asdict(self)).items():
            if (value := getattr(self, name)) != type(self).__dataclass_fields__[name].default:
                raise ValueError(f"{name}={value!r} {reason}.")

    def to_json(self) -> str:
        """As text that :meth:`from_json` reads."""
        fields = dataclasses.asdict(self)
        if not self.categories:  # as in files of earlier releases
            del fields["categories"]
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> DARNConfig:
        """The configuration that :meth:`to_json` wrote.

        :raises ValueError: if the text is something else.
        """
        try:
            return cls(**json.loads(text))
        except (TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is no configuration of a DARN ({error}).") from error


def used_fields(values: Mapping[str, Value]) -> dict[str, Value]:
    """Of fields of a `DARNConfig`, those that say something of a model with these."""
    unused = _unused(values)
    return {name: value for name, value in values.items() if name not in unused}


_USERS = {"conditional_units": {"nade", "eonade", "made"}, "orders": {"eonade", "made"}}
_OF_LAYERS = {"units": "lie between", "encoder": "is of", "prior": "is of", "skip": "is of"}


def _unused(values: Mapping[str, object]) -> dict[str, str]:
    """Fields that say nothing of a model with these values, and why: the end of a sentence."""
    # Conditionals that the model has, in the decoder and in all.
    has_hidden = bool(values.get("hidden", True))
    has_units = bool(values.get("units"))
    decoder = {values.get("visible_conditional"), *([values.get("prior")] if has_hidden else [])}
    kinds = {"conditional_units": decoder | ({values.get("encoder")} if has_hidden else set()), "orders": decoder}
    reasons = {
        name: f"is for the conditionals {', '.join(sorted(users))}, and there is none of them; leave it out, or give "
        f"visible_conditional={sorted(users)[0]!r}"
        for name, users in _USERS.items()
        if not kinds[name] & users
    }
    # What is of stochastic layers, where there are none, and of units between them.
    for name, relation in () if has_hidden else _OF_LAYERS.items():
        reasons[name] = (
            f"{relation} stochastic layers, and there are none with hidden=(); leave {name} out, or give hidden"
        )
    if not (has_hidden and has_units):
        reasons["activation"] = "is of deterministic units, and there are none; leave activation out, or give units"
    return reasons


def _whole_numbers(name: str, values: object, what: str = "numbers") -> tuple[int, ...]:
    """At most :data:`MAX_LAYERS` whole numbers from 1 on.

    :param name: of the field.
    :param what: they are.
    :raises ValueError: with the name, if they are something else.
    """
    numbers = tuple(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else None
    if numbers is None or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers):
        raise ValueError(f"{name} must be whole {what}, as (8,) or (8, 4), got {values!r}.")
    if any(number < 1 for number in numbers):
        raise ValueError(f"{name}: {what} must be at least 1, got {numbers}.")
    if len(numbers) > MAX_LAYERS:
        raise ValueError(f"{name} must be of at most {MAX_LAYERS} layers, got {len(numbers)}.")
    return tuple(int(number) for number in numbers)


def check_plain(data: ArrayLike, name: str) -> None:
    """Refuse arrays that say more than their values: masked cells, and sparse matrices, which NumPy takes for one cell.

    :raises ValueError: with the name, and what to do.
    """
    if hasattr(data, "toarray"):
        raise ValueError(f"{name} must be a dense array, got a sparse {type(data).__name__}; give {name}.toarray().")
    if np.ma.is_masked(data):
        raise ValueError(
            f"{name} must have no masked cells, got {np.ma.count_masked(data)}; fill or drop them, or complete them "
            "first."
        )


def check_data(data: ArrayLike, config: DARNConfig, name: str = "data") -> NDArray:
    """The data as an array [N, n_x], after checking that the model can have produced it.

    :raises ValueError: naming what is wrong, where, and what to do: another shape or width, NaN, values other than 0
        and 1 (outside [0, 1] for intensities).
    """
    check_plain(data, name)
    array = np.asarray(data)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a matrix [N, n_x] with at least one row and column, got shape {array.shape}.")
    if array.shape[1] != config.visible:
        raise ValueError(f"{name} must have {config.visible} columns, one a visible unit, got {array.shape[1]}.")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers 0 and 1 (or booleans), got dtype {array.dtype}; encode it first.")
    # Which values the cost is defined for.
    if config.observations == "binary":
        wrong = (array != 0) & (array != 1)
        allowed = "0 or 1"
        remedy = "binarise it, or use observations='intensities' for numbers in [0, 1]"
    else:
        wrong = ~((array >= 0) & (array <= 1))
        allowed = "in [0, 1]"
        remedy = "divide pixels by their largest value"
    # The first cell that is wrong is named.
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        if array.dtype.kind == "f" and np.isnan(array[row, column]):
            remedy = "drop or impute missing values"
        raise ValueError(
            f"{name} must be {allowed} everywhere, got {array[row, column]} in row {row}, column {column} "
            f"({np.sum(wrong)} such values); {remedy}."
        )
    return array


def check_numbers(settings: object, *names: str) -> None:
    """Refuse fields of settings that are neither numbers nor None.

    :raises ValueError: with the name.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not isinstance(value, Real):
            raise ValueError(f"{name} must be a number, got {value!r}.")


def check_whole(name: str, value: object) -> int:
    """A whole number from 1 on, as Python has it.

    :raises ValueError: with the name, if it is something else.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {value!r}.")
    return int(value)
