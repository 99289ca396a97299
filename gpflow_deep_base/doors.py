"""Doors of packages: names that are imported at their first use, by lazy_loader."""

import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

__all__ = ["attach", "attach_stub"]


def attach(
    package_name: str, submod_attrs: Mapping[str, Sequence[str]] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__, __dir__, __all__` as `lazy_loader.attach` gives them, of all modules in the package's folder.

    Where that library is absent, as on a device that has NumPy alone, modules are imported by their full names.

    :param package_name: `__name__` of the package.
    :param submod_attrs: names to export, by the module that has them.
    """
    try:
        import lazy_loader
    except ImportError:
        return _absent_of(package_name), list, []
    # All modules of the folder are names of the package, whether it exports others or not.
    names = [module.name for module in pkgutil.iter_modules(sys.modules[package_name].__path__)]
    return lazy_loader.attach(package_name, submodules=names, submod_attrs=dict(submod_attrs or {}))  # type: ignore[no-any-return]


def attach_stub(package_name: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The same by the `.pyi` file beside a package's `__init__.py`: names come from where it says.

    :param package_name: `__name__` of the package.
    :param file: `__file__` of it.
    """
    try:
        import lazy_loader
    except ImportError:
        return _absent_of(package_name), list, []
    return lazy_loader.attach_stub(package_name, file)  # type: ignore[no-any-return]


def _absent_of(package_name: str) -> Callable[[str], object]:
    def absent(name: str) -> NoReturn:
        raise AttributeError(f"{package_name}.{name}: names of the package need lazy_loader; import its module.")

    return absent
